// Package stderr writes to standard error from a library. The Go runtime ends a process by
// SIGPIPE if a write to descriptor 2 through os.Stderr finds a pipe without a reader, as
// where the launcher is gone. A library must not end its program for a line that is lost.
//
// It stands on golang.org/x/sys.
package stderr

import (
	"os"

	"golang.org/x/sys/unix"
)

// Writer writes to standard error. A write blocks while the pipe or terminal is full, and
// returns EPIPE if nobody reads any more.
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
