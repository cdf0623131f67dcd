package progress

import "golang.org/x/sys/unix"

// fdPoller turns readable descriptors into rings of the engine's bell: one goroutine,
// and one thread of the system, for all descriptors. A descriptor
// is watched only after arm, and only until it was readable once, so that a
// rank that polls by itself causes no wake-ups.
type fdPoller struct {
	bell  *Bell
	epoll int // -1: there is none
	wake  int // eventfd that ends the goroutine
	done  chan struct{}
}

// newFDPoller returns a poller. Where the system refuses one (no descriptors
// left) its arm says so, and the keeper polls at an interval instead.
func newFDPoller(bell *Bell) *fdPoller {
	p := &fdPoller{bell: bell, epoll: -1, done: make(chan struct{})}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return p
	}
	ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return p
	}
	p.epoll, p.wake = ep, ev
	unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, ev, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(ev)})
	go p.run()
	return p
}

func (p *fdPoller) run() {
	defer close(p.done)
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			if int(ev.Fd) == p.wake {
				return
			}
		}
		p.bell.Ring()
	}
}

// add registers d, not armed.
func (p *fdPoller) add(d Descriptor) {
	unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, d.FD(), &unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: int32(d.FD())})
}

// arm has the bell rung once when d is readable. It reports whether it will be.
func (p *fdPoller) arm(d Descriptor) bool {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(d.FD())}
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, d.FD(), &ev) == nil
}

func (p *fdPoller) remove(d Descriptor) {
	unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, d.FD(), nil)
}

func (p *fdPoller) close() {
	if p.epoll < 0 {
		return
	}
	unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-p.done
	unix.Close(p.epoll)
	unix.Close(p.wake)
}
