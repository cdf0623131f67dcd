//go:build race

package rawsys

import "golang.org/x/sys/unix"

// Read is read(2), visible to the race detector. A write happens before the read of its bytes.
func Read(fd int, b []byte) (int, unix.Errno) { return errno(unix.Read(fd, b)) }

// Write is write(2), visible to the race detector.
func Write(fd int, b []byte) (int, unix.Errno) { return errno(unix.Write(fd, b)) }

func errno(n int, err error) (int, unix.Errno) {
	e, _ := err.(unix.Errno)
	return n, e
}
