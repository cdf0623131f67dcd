package progress

import (
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fdPoller rings the engine's bell for readable descriptors. It has one epoll descriptor and one goroutine for all of them. A descriptor is watched after
// arm until it is readable once, so that a rank that polls causes no wake-ups. It is removed from epoll when waits have polled for some time. Otherwise
// every sender to one of its sockets would pay for a check of waiters by the system, 350 of the 4,200 cycles of a small message through TCP.
//
// The goroutine waits in Go's network poller. A thread blocked in epoll_wait would keep its P until sysmon takes it away, which may take milliseconds
// at the start of a program. The session and the first communicator of two ranks took 3.7 ms with it, and take 2.0 without.
type fdPoller struct {
	bell *Bell
	// -1 if there is none.
	epollFD   int
	epollFile *os.File // Of epollFD.
	done      chan struct{}

	// Guarded by the engine's lock.
	watchedFDs []int // Descriptors in epoll.
	// Calls of rest since arm.
	restCalls int
}

// newFDPoller returns a poller. If the system has no descriptor left for it, arm returns false, and the progress goroutine polls at an interval.
func newFDPoller(bell *Bell) *fdPoller {
	p := &fdPoller{bell: bell, epollFD: -1, done: make(chan struct{})}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return p
	}
	// Nonblocking, so that os.NewFile registers it with the network poller.
	if err := unix.SetNonblock(ep, true); err != nil {
		unix.Close(ep)
		return p
	}
	file := os.NewFile(uintptr(ep), "epoll")
	conn, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // Fails if the network poller does not watch it.
	}
	if err != nil {
		file.Close()
		return p
	}
	p.epollFD, p.epollFile = ep, file
	go p.run(conn)
	return p
}

// run returns when the file is closed.
func (p *fdPoller) run(conn syscall.RawConn) {
	defer close(p.done)
	p.bell.engine.label()
	events := make([]unix.EpollEvent, 16)
	conn.Read(func(ep uintptr) (done bool) {
		for {
			n, err := unix.EpollWait(int(ep), events, 0)
			switch {
			case err == unix.EINTR:
			case err != nil:
				return true
			case n == 0:
				return false
			default:
				p.bell.Ring()
			}
		}
	})
}

// arm makes the poller ring the bell once when d is readable. It returns false if that is not possible.
func (p *fdPoller) arm(d Descriptor) bool {
	p.restCalls = 0
	fd := d.FD()
	op := unix.EPOLL_CTL_MOD
	if !slices.Contains(p.watchedFDs, fd) {
		op = unix.EPOLL_CTL_ADD
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(fd)}
	if unix.EpollCtl(p.epollFD, op, fd, &ev) != nil {
		return false
	}
	if op == unix.EPOLL_CTL_ADD {
		p.watchedFDs = append(p.watchedFDs, fd)
	}
	return true
}

// restAfter is the number of consecutive ticks with polls of another goroutine after which descriptors are removed. Adding a descriptor takes longer than
// arming one.
const restAfter = 2

// rest records that another goroutine polls, so that no wake-up is needed.
func (p *fdPoller) rest() {
	if p.restCalls++; p.restCalls != restAfter {
		return
	}
	for _, fd := range p.watchedFDs {
		unix.EpollCtl(p.epollFD, unix.EPOLL_CTL_DEL, fd, nil)
	}
	p.watchedFDs = p.watchedFDs[:0]
}

func (p *fdPoller) remove(d Descriptor) {
	if i := slices.Index(p.watchedFDs, d.FD()); i >= 0 {
		unix.EpollCtl(p.epollFD, unix.EPOLL_CTL_DEL, d.FD(), nil)
		p.watchedFDs = slices.Delete(p.watchedFDs, i, i+1)
	}
}

func (p *fdPoller) close() {
	if p.epollFD < 0 {
		return
	}
	p.epollFile.Close()
	<-p.done
}
