package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// backgroundPoll is the interval of checks for the foreground, for a launcher in the
// background.
const backgroundPoll = 200 * time.Millisecond

// A terminalReader copies a terminal's input to a rank. Ranks are outside the terminal's
// foreground process group, and would be stopped if they read it.
type terminalReader struct {
	terminal *os.File
	// Of the rank's standard input.
	inputWriteEnd *os.File
	// Closing stopWriteEnd ends a poll of stopReadEnd.
	stopReadEnd, stopWriteEnd *os.File
}

// newTerminalReader returns a reader and the rank's end of its pipe. The caller starts run, or
// calls abort.
func newTerminalReader(terminal *os.File) (*terminalReader, *os.File, error) {
	input, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("input pipe: %w", err)
	}
	stop, stopped, err := os.Pipe()
	if err != nil {
		input.Close()
		to.Close()
		return nil, nil, fmt.Errorf("input pipe: %w", err)
	}
	return &terminalReader{terminal: terminal, inputWriteEnd: to, stopReadEnd: stop, stopWriteEnd: stopped}, input, nil
}

// close ends the copy, and does not wait for it. If another program reads the same terminal,
// run may be blocked in a read until the next input, since a poll does not reserve it.
func (t *terminalReader) close() {
	t.stopWriteEnd.Close()
	t.inputWriteEnd.Close()
}

// abort releases a reader that never ran.
func (t *terminalReader) abort() {
	t.close()
	t.stopReadEnd.Close()
}

// run copies until the end of the input, or until the rank has closed it. A process in the
// background that reads its terminal is stopped by SIGTTIN; on a thread that blocks SIGTTIN,
// the read fails with EIO instead (termios(3)).
func (t *terminalReader) run() {
	defer t.stopReadEnd.Close()
	defer t.inputWriteEnd.Close()
	runtime.LockOSThread() // Never unlocked, so that the thread ends with its signal mask.
	var mask unix.Sigset_t
	mask.Val[(unix.SIGTTIN-1)/64] |= 1 << ((unix.SIGTTIN - 1) % 64)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil); err != nil {
		return
	}
	buf := make([]byte, 4096)
	for {
		ready, isStopped := t.poll(unix.POLLIN, -1)
		if isStopped {
			return
		}
		if ready == 0 { // Interrupted, by SIGCONT or a change of the terminal's size.
			continue
		}
		n, err := ioctl(t.terminal, func(fd int) (int, error) { return unix.Read(fd, buf) })
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EIO) && ready&unix.POLLHUP == 0: // in the background
			if _, isStopped = t.poll(0, backgroundPoll); isStopped {
				return
			}
			continue
		case err != nil || n == 0:
			return
		}
		if _, err := t.inputWriteEnd.Write(buf[:n]); err != nil {
			return
		}
	}
}

// poll waits for events of the terminal, or until the reader is stopped. A negative limit is
// none.
func (t *terminalReader) poll(events int16, limit time.Duration) (ready int16, isStopped bool) {
	ms := -1
	if limit >= 0 {
		ms = int(limit.Milliseconds())
	}
	fds := []unix.PollFd{{Fd: int32(t.stopReadEnd.Fd()), Events: unix.POLLIN}, {Events: events}}
	_, err := ioctl(t.terminal, func(fd int) (int, error) {
		fds[1].Fd = int32(fd)
		return unix.Poll(fds, ms)
	})
	if err != nil && !errors.Is(err, unix.EINTR) {
		return 0, true
	}
	return fds[1].Revents, fds[0].Revents != 0
}
