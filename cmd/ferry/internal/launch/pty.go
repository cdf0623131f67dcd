package launch

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal is given to ranks as it is, but for standard error: of that the last lines are
// wanted, so that a rank gets a terminal of its own (pty(7)), from which everything is
// copied to the real one. It is not the rank's controlling terminal: no key has a meaning
// there, and no rank is stopped for writing to it.

// A screen is the far end of a rank's own terminal.
type screen struct {
	near, far *os.File // near is the rank's, and is closed here when the rank has it
	copied    chan struct{}
}

// newScreen returns a terminal like the real one: as wide, and changing no byte.
func newScreen(real *os.File) (*screen, error) {
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	number, err := ioctl(far, func(fd int) (int, error) {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return 0, err
		}
		return unix.IoctlGetInt(fd, unix.TIOCGPTN)
	})
	var near *os.File
	if err == nil {
		near, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		far.Close()
		return nil, err
	}
	s := &screen{near: near, far: far, copied: make(chan struct{})}
	_, err = ioctl(near, func(fd int) (int, error) {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			mode.Oflag &^= unix.OPOST // the real one makes line ends of its own
			err = unix.IoctlSetTermios(fd, unix.TCSETS, mode)
		}
		return 0, err
	})
	if err != nil {
		s.close()
		return nil, err
	}
	s.resize(real)
	return s, nil
}

// ioctl calls f with the descriptor of a file, which the runtime keeps on polling.
func ioctl(file *os.File, f func(fd int) (int, error)) (n int, err error) {
	c, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := c.Control(func(fd uintptr) { n, err = f(int(fd)) }); failed != nil {
		return 0, failed
	}
	return n, err
}

// resize makes the terminal as large as the real one. A size is of use to few, and nothing
// depends on it.
func (s *screen) resize(real *os.File) {
	var size *unix.Winsize
	_, err := ioctl(real, func(fd int) (_ int, err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return 0, err
	})
	if err == nil {
		_, _ = ioctl(s.far, func(fd int) (int, error) { return 0, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	}
}

// copyTo copies what the rank writes, until all have closed the terminal, and keeps the last
// lines. The rank has it.
func (s *screen) copyTo(d *destination, last *tail) {
	s.near.Close()
	go func() {
		defer close(s.copied)
		b := make([]byte, 4096)
		for {
			n, err := s.far.Read(b)
			last.add(b[:n])
			d.write(b[:n])
			if err != nil { // EIO is the end
				return
			}
		}
	}()
}

// drain gives what is on its way drainGrace: a process that has left its rank's group may
// hold the terminal open.
func (s *screen) drain() {
	select {
	case <-s.copied:
	case <-time.After(drainGrace):
	}
	s.far.Close()
	<-s.copied
}

func (s *screen) close() {
	s.near.Close()
	s.far.Close()
}
