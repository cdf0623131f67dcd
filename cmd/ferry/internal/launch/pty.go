package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newPTY returns a pseudo-terminal (pty(7)) of the size of the terminal real, which changes no
// byte. near is for the rank. Since it is not the rank's controlling terminal, keys send no
// signals, and writing never stops a rank.
//
// Ranks inherit a terminal as their standard output, unless it would stop them. Their
// standard error is a pseudo-terminal, since the launcher keeps its last lines.
func newPTY(real *os.File) (far, near *os.File, err error) {
	far, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			far.Close()
			if near != nil {
				near.Close()
			}
		}
	}()
	number, err := ioctl(far, func(fd int) (int, error) {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return 0, err
		}
		return unix.IoctlGetInt(fd, unix.TIOCGPTN)
	})
	if err != nil {
		return nil, nil, err
	}
	near, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	_, err = ioctl(near, func(fd int) (int, error) {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			mode.Oflag &^= unix.OPOST // The real terminal translates line ends.
			err = unix.IoctlSetTermios(fd, unix.TCSETS, mode)
		}
		return 0, err
	})
	if err != nil {
		return nil, nil, err
	}
	copySize(real, far)
	return far, near, nil
}

// stopsBackgroundWriters reports whether a terminal stops processes outside its foreground
// group that write to it, as ranks are (stty tostop).
func stopsBackgroundWriters(terminal *os.File) bool {
	lflag, err := ioctl(terminal, func(fd int) (int, error) {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return 0, err
		}
		return int(mode.Lflag), nil
	})
	return err == nil && lflag&unix.TOSTOP != 0
}

// copySize sets the size of one terminal to that of another. Failures are ignored.
func copySize(from, to *os.File) {
	var size *unix.Winsize
	_, err := ioctl(from, func(fd int) (_ int, err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return 0, err
	})
	if err == nil {
		_, _ = ioctl(to, func(fd int) (int, error) { return 0, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	}
}

// ioctl calls f with the descriptor of a file, and keeps the file's mode: (*os.File).Fd would
// set it to blocking.
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
