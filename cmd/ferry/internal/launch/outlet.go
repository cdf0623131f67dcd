package launch

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// drainGrace is the time that an empty pipe stays open after the end of all ranks. A descendant
// outside of its rank's process group may hold it open.
const drainGrace = time.Second

// ptyCapacity bounds the output of a pseudo-terminal in buffers of the kernel.
const ptyCapacity = 128 << 10

// An outlet copies the output of a rank from the launcher's end of a pipe or
// pseudo-terminal to a stream.
type outlet struct {
	launcherEnd *os.File
	stream      *stream
	copyDone    chan struct{}
}

func newOutlet(file *os.File, to *stream) *outlet {
	return &outlet{launcherEnd: file, stream: to, copyDone: make(chan struct{})}
}

// copy runs until the end of the output. It blocks while the sink does.
func (o *outlet) copy() {
	defer close(o.copyDone)
	defer o.launcherEnd.Close()
	defer o.stream.flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := o.launcherEnd.Read(buf)
		o.stream.add(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.copyRest(buf)
			return
		}
		if err != nil { // io.EOF; EIO at the end of a pseudo-terminal
			return
		}
	}
}

// drain bounds the wait for a pipe that stays open. Call it after the rank has ended.
func (o *outlet) drain() {
	// Fails only after the end of the copy.
	_ = o.launcherEnd.SetReadDeadline(time.Now().Add(drainGrace))
}

// copyRest copies the bytes that are in the pipe, without waiting for more. They include
// the whole output of the rank. The size of the pipe bounds
// them, also if a descendant continues to write.
func (o *outlet) copyRest(buf []byte) {
	_ = o.launcherEnd.SetReadDeadline(time.Time{}) // An expired deadline would fail the reads.
	conn, err := o.launcherEnd.SyscallConn()
	if err != nil {
		return
	}
	left := ptyCapacity
	for first := true; left > 0; first = false {
		var n int
		failed := conn.Read(func(fd uintptr) bool {
			if size, sizeErr := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); first && sizeErr == nil {
				left = size
			}
			n, err = unix.Read(int(fd), buf)
			return true
		})
		switch {
		case failed == nil && errors.Is(err, unix.EINTR):
			continue
		case failed != nil || err != nil || n <= 0:
			return
		}
		o.stream.add(buf[:n])
		left -= n
	}
}

// close releases an outlet that never ran.
func (o *outlet) close() { o.launcherEnd.Close() }
