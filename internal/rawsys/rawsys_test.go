package rawsys_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/rawsys"
)

func TestReadWrite_SocketStates_ReturnErrnoOfSystem(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	for _, size := range []int{1, rawsys.MaxBytes} {
		in, out := bytes.Repeat([]byte{7}, size), make([]byte, size)
		if n, e := rawsys.Read(fds[1], out); n != -1 || e != unix.EAGAIN {
			t.Errorf("read of %d bytes from an empty socket: %d, %v", size, n, e)
		}
		if n, e := rawsys.Write(fds[0], in); n != size || e != 0 {
			t.Fatalf("wrote %d of %d bytes: %v", n, size, e)
		}
		if n, e := rawsys.Read(fds[1], out); n != size || e != 0 || !bytes.Equal(in, out) {
			t.Errorf("read %d of %d bytes: %v", n, size, e)
		}
	}
	full := unix.Errno(0)
	for full == 0 {
		_, full = rawsys.Write(fds[0], make([]byte, rawsys.MaxBytes))
	}
	if full != unix.EAGAIN {
		t.Errorf("write to a full socket: %v", full)
	}
	unix.Close(fds[0])
	for n := 1; n > 0; {
		var e unix.Errno
		if n, e = rawsys.Read(fds[1], make([]byte, rawsys.MaxBytes)); n == 0 && e != 0 {
			t.Errorf("read after the end: %v", e)
		}
	}
	if n, e := rawsys.Write(-1, nil); n != -1 || e != unix.EBADF {
		t.Errorf("write to descriptor -1: %d, %v", n, e)
	}
}
