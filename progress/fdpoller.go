package progress

import (
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fdPoller turns readable descriptors into rings of the engine's bell: one epoll
// descriptor and one goroutine for all of them. A descriptor is watched only after arm,
// and only until it was readable once, so that a rank that polls by itself causes no
// wake-ups. While nobody sleeps for longer it is taken out: whoever sends to one of the
// sockets behind it would pay for each packet that the system looks whether somebody
// waits, some 350 cycles of the 4,200 that a small message takes through TCP.
//
// The goroutine waits in Go's own network poller. A thread of its own, blocked in
// epoll_wait, would keep the P it came with until sysmon takes that away, which may be
// milliseconds after the start of a program: session and first communicator of two
// ranks took 3.7 ms instead of 2.0.
type fdPoller struct {
	bell  *Bell
	epoll int      // -1: there is none
	file  *os.File // of epoll
	done  chan struct{}

	// Guarded by the engine's lock.
	watched []int // descriptors that are in epoll
	busy    int   // times that rest was called since arm
}

// newFDPoller returns a poller. Where the system refuses one (no descriptors
// left) its arm returns false, and the progress goroutine polls at an interval instead.
func newFDPoller(bell *Bell) *fdPoller {
	p := &fdPoller{bell: bell, epoll: -1, done: make(chan struct{})}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return p
	}
	// Nonblocking, so that os.NewFile hands it to the network poller.
	if err := unix.SetNonblock(ep, true); err != nil {
		unix.Close(ep)
		return p
	}
	file := os.NewFile(uintptr(ep), "epoll")
	conn, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails if the network poller does not watch it
	}
	if err != nil {
		file.Close()
		return p
	}
	p.epoll, p.file = ep, file
	go p.run(conn)
	return p
}

// run ends when the file is closed.
func (p *fdPoller) run(conn syscall.RawConn) {
	defer close(p.done)
	p.bell.e.label()
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

// arm has the bell rung once when d is readable. It reports whether it will be.
func (p *fdPoller) arm(d Descriptor) bool {
	p.busy = 0
	fd := d.FD()
	op := unix.EPOLL_CTL_MOD
	if !slices.Contains(p.watched, fd) {
		op = unix.EPOLL_CTL_ADD
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(fd)}
	if unix.EpollCtl(p.epoll, op, fd, &ev) != nil {
		return false
	}
	if op == unix.EPOLL_CTL_ADD {
		p.watched = append(p.watched, fd)
	}
	return true
}

// restAfter is the number of consecutive ticks of the progress goroutine in which another
// goroutine polled: to put a descriptor in again takes longer than to arm one.
const restAfter = 2

// rest says that somebody polls, so that nobody has to be woken.
func (p *fdPoller) rest() {
	if p.busy++; p.busy != restAfter {
		return
	}
	for _, fd := range p.watched {
		unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	}
	p.watched = p.watched[:0]
}

func (p *fdPoller) remove(d Descriptor) {
	if i := slices.Index(p.watched, d.FD()); i >= 0 {
		unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, d.FD(), nil)
		p.watched = slices.Delete(p.watched, i, i+1)
	}
}

func (p *fdPoller) close() {
	if p.epoll < 0 {
		return
	}
	p.file.Close()
	<-p.done
}
