package ofi

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// descriptorModule is a module whose completion queue has a descriptor. The engine watches an epoll
// descriptor of the module instead of libfabric's, which closes when the module fails, so that its
// number may be reused while the engine watches it.
type descriptorModule struct {
	*module
	waitFD int
}

func newDescriptorModule(m *module) (mtl.Module, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, m.ep.FD(), &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return descriptorModule{m, fd}, nil
}

func (d descriptorModule) FD() int { return d.waitFD }

func (d descriptorModule) Close() error {
	if d.state != endpointClosed {
		unix.Close(d.waitFD)
	}
	return d.module.Close()
}

func (d descriptorModule) Arm() bool {
	if d.Err != nil {
		return true
	}
	return d.Results.IsEmpty() && len(d.offloader.queuedCalls) == 0 && (d.offloader.activeCall != nil || d.ep.TryWait())
}

// Interval implements progress.Polled. The descriptor does not announce that blocked operations have
// space again, nor, with most providers, connection requests.
func (d descriptorModule) Interval() time.Duration {
	switch {
	case d.Err != nil && !d.awaitsOffload():
		return 0
	case d.offloader.activeCall != nil || len(d.peerTable.blockedPeers) > 0 || d.receiveOverflow.hasReceives():
		return base.PollInterval
	}
	return connectInterval
}

// polledModule is a module without a descriptor.
type polledModule struct{ *module }

func (p polledModule) Interval() time.Duration {
	if p.Err != nil && !p.awaitsOffload() {
		return 0
	}
	return base.PollInterval
}

// connectInterval limits the delay of each step of a peer's connection to a sleeping process. At
// 10 ms, polling takes 1 % of a processor.
const connectInterval = 10 * time.Millisecond
