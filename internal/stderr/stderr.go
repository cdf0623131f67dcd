// Package stderr writes to standard error from a library. The Go runtime ends a process by
// SIGPIPE if a write to descriptor 2 through os.Stderr finds a pipe without a reader, for example
// after the end of the launcher. A lost line must not end the program of a library.
package stderr

import (
	"os"

	"golang.org/x/sys/unix"
)

// Writer writes to standard error. A write blocks while the pipe or terminal is full, and
// returns EPIPE if it has no reader any more.
type Writer struct{}

// Write implements io.Writer.
func (Writer) Write(b []byte) (n int, err error) {
	for n < len(b) {
		k, err := unix.Write(int(os.Stderr.Fd()), b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}
