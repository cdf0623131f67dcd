package ofi

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mtl"
)

// awaited is a module whose completion queue has a descriptor. The engine does not
// watch that one, which is libfabric's, and closed when the module fails: its number
// is soon somebody else's. It watches an epoll of the module's own around it.
type awaited struct {
	*module
	fd int
}

// await returns m as what announces itself by its completion queue's descriptor.
func await(m *module) (mtl.Module, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, m.ep.FD(), &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return awaited{m, fd}, nil
}

func (a awaited) FD() int { return a.fd }

func (a awaited) Close() error {
	if !a.closed {
		unix.Close(a.fd)
	}
	return a.module.Close()
}

func (a awaited) Arm() bool { return a.broken != nil || len(a.over) == 0 && a.ep.TryWait() }

// Interval implements progress.Polled: no descriptor tells when there is room
// for what waits, nor, with most providers, that somebody wants to connect.
func (a awaited) Interval() time.Duration {
	switch {
	case a.broken != nil:
		return 0
	case len(a.blocked) > 0 || len(a.lines) > 0 || a.urgent.head != nil:
		return pollInterval
	}
	return connectInterval
}

// polled is a module that nothing announces.
type polled struct{ *module }

func (p polled) Interval() time.Duration {
	if p.broken != nil {
		return 0
	}
	return pollInterval
}

// pollInterval is how often a module that can't be awaited is polled while all
// sleep. At 0.1 ms it takes 15 % of a processor, as measured with tcp;ofi_rxm.
const pollInterval = time.Millisecond

// connectInterval is how long a peer may wait for a process that sleeps to take
// each step of its connection. At 10 ms it takes 1 % of a processor.
const connectInterval = 10 * time.Millisecond
