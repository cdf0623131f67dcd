package rawsys_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/rawsys"
)

// TestCallsSayWhatTheSystemSays of a socket that has nothing, or is full, of an end, and of
// a descriptor that is none.
func TestCallsSayWhatTheSystemSays(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	for _, size := range []int{1, rawsys.Most} {
		in, out := bytes.Repeat([]byte{7}, size), make([]byte, size)
		if n, e := rawsys.Read(fds[1], out); n != -1 || e != unix.EAGAIN {
			t.Errorf("%d bytes of nothing: %d, %v", size, n, e)
		}
		if n, e := rawsys.Write(fds[0], in); n != size || e != 0 {
			t.Fatalf("%d of %d bytes are written: %v", n, size, e)
		}
		if n, e := rawsys.Read(fds[1], out); n != size || e != 0 || !bytes.Equal(in, out) {
			t.Errorf("%d of %d bytes are read: %v", n, size, e)
		}
	}
	full := unix.Errno(0)
	for full == 0 {
		_, full = rawsys.Write(fds[0], make([]byte, rawsys.Most))
	}
	if full != unix.EAGAIN {
		t.Errorf("a full socket: %v", full)
	}
	unix.Close(fds[0])
	for n := 1; n > 0; {
		var e unix.Errno
		if n, e = rawsys.Read(fds[1], make([]byte, rawsys.Most)); n == 0 && e != 0 {
			t.Errorf("the end: %v", e)
		}
	}
	if n, e := rawsys.Write(-1, nil); n != -1 || e != unix.EBADF {
		t.Errorf("no descriptor: %d, %v", n, e)
	}
}
