//go:build race

package rawsys

import "golang.org/x/sys/unix"

// Read is read(2), of which the race detector hears: what was done before a write comes
// before what is done after the read.
func Read(fd int, b []byte) (int, unix.Errno) { return errno(unix.Read(fd, b)) }

// Write is write(2), of which the race detector hears.
func Write(fd int, b []byte) (int, unix.Errno) { return errno(unix.Write(fd, b)) }

func errno(n int, err error) (int, unix.Errno) {
	e, _ := err.(unix.Errno) // a system call returns no other
	return n, e
}
