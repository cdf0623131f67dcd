package tcp

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// timers are the times of the module, since startedAt.
type timers struct {
	startedAt       time.Time
	lastClock       time.Duration
	nextAt          time.Duration
	livenessCheckAt time.Duration
	lastPollAt      time.Duration
	// First poll after a long pause of the process.
	resumedAt time.Duration
}

// pacer spreads the polls of the sockets.
type pacer struct {
	pollsUntilSockets int
	// Start value of pollsUntilSockets.
	socketPollInterval int
	pollCount          uint64
}

// A poll of the sockets is a system call, and a poll of rings is not. The interval between polls of the
// sockets is 1 while events arrive, and then doubles up to these. A process always polls before it sleeps.
const (
	maxIntervalConnected = 16
	maxIntervalIdle      = 256
)

// Poll implements progress.Source. Without work it costs a countdown.
func (m *module) Poll() int {
	if m.pacer.pollsUntilSockets--; m.pacer.pollsUntilSockets > 0 && len(m.readyLinks)+len(m.pendingPeers) == 0 && !m.env.Bell().Armed() {
		return 0
	}
	m.pacer.pollCount++
	n := 0
	if m.pacer.pollsUntilSockets <= 0 || m.env.Bell().Armed() {
		n = m.pollSockets()
	}
	n += m.readLinks()
	m.processPending()
	return n
}

// PollAll implements btl.FullPoller.
func (m *module) PollAll() int {
	m.pacer.pollsUntilSockets = 0
	return m.Poll()
}

// pollSockets dispatches the events of the sockets, and runs timers that are due. It reads the clock
// first, so that new deadlines count from this poll.
func (m *module) pollSockets() int {
	now := m.readClock()
	n := m.dispatchEvents()
	if now > m.timers.lastPollAt+2*livenessPeriod {
		m.timers.resumedAt = now
	}
	if m.timers.lastPollAt = now; now >= m.timers.nextAt {
		m.runTimers(now)
	}
	switch {
	case n > 0:
		m.pacer.socketPollInterval = 1
	case len(m.peers.byIncarnation)+len(m.inbound.handshakingConns) == 0:
		m.pacer.socketPollInterval = min(2*m.pacer.socketPollInterval, maxIntervalIdle)
	default:
		m.pacer.socketPollInterval = min(2*m.pacer.socketPollInterval, maxIntervalConnected)
	}
	m.pacer.pollsUntilSockets = m.pacer.socketPollInterval
	return n
}

// dispatchEvents passes edge-triggered events to the handlers.
func (m *module) dispatchEvents() (n int) {
	for {
		k, err := unix.EpollWait(m.poller.epollFD, m.poller.eventBuf[:], 0)
		if err == unix.EINTR {
			continue
		}
		for _, ev := range m.poller.eventBuf[:max(k, 0)] {
			// An earlier event may have closed this descriptor, and another socket may use it now.
			if s := m.socketAt(int(ev.Fd)); s != nil && s.generation == ev.Pad {
				if s.tunnel != nil && s.tunnel.isReady.Load() {
					s.tunnel.flushCiphertext()
				}
				s.handler.handleEvents(ev.Events)
				n++
			}
		}
		if k < len(m.poller.eventBuf) {
			return n
		}
	}
}

// readLinks reads the ready links.
func (m *module) readLinks() (n int) {
	hot := m.readyLinks
	m.readyLinks = nil
	for _, l := range hot {
		l.isQueued = false
		n += l.readFrames(framesPerPoll)
		if l.canRead() {
			l.enqueue()
		}
	}
	if m.readyLinks == nil {
		m.readyLinks = hot[:0]
	}
	return n
}

// processPending completes the pending peers. Peers that become pending meanwhile are included.
func (m *module) processPending() {
	for i := 0; i < len(m.pendingPeers); i++ {
		p := m.pendingPeers[i]
		p.isPending = false
		p.processPending()
	}
	clear(m.pendingPeers)
	m.pendingPeers = m.pendingPeers[:0]
}

// readClock reads the clock into timers.lastClock.
func (m *module) readClock() time.Duration {
	m.timers.lastClock = time.Since(m.timers.startedAt)
	return m.timers.lastClock
}

// scheduleAt makes runTimers due at a time or earlier.
func (m *module) scheduleAt(when time.Duration) { m.timers.nextAt = min(m.timers.nextAt, when) }

// livenessPeriod is the time between two liveness checks of all links.
const livenessPeriod = time.Second

// runTimers runs everything that is due at now.
func (m *module) runTimers(now time.Duration) {
	m.timers.nextAt = now + time.Minute
	for len(m.inbound.handshakingConns) > 0 && m.inbound.handshakingConns[0].handshakeDeadline <= now {
		m.inbound.handshakingConns[0].refuse("its handshake timed out")
	}
	for _, c := range slices.Clone(m.inbound.handshakingConns) {
		m.scheduleAt(c.handshakeDeadline)
		c.retryHello()
	}
	if m.inbound.listener != nil && m.inbound.listener.needsRetry {
		m.inbound.listener.handleEvents(unix.EPOLLIN)
	}
	census := now >= m.timers.livenessCheckAt
	if census {
		m.timers.livenessCheckAt = now + livenessPeriod
		m.bufferPool.trim()
	}
	for _, p := range m.sortedPeers() {
		if census && !p.isClosed {
			p.checkLiveness(now)
		}
		if !p.isClosed {
			p.runTimers(now)
		}
	}
	if len(m.peers.byIncarnation) > 0 {
		m.scheduleAt(m.timers.livenessCheckAt)
	}
}

// FD implements progress.Descriptor.
func (m *module) FD() int { return m.poller.epollFD }

// Arm implements progress.Descriptor. Every event of a socket makes the descriptor readable.
func (m *module) Arm() bool { return len(m.readyLinks)+len(m.pendingPeers) == 0 }

// Due implements progress.Timed.
func (m *module) Due() time.Duration {
	if len(m.peers.byIncarnation)+len(m.inbound.handshakingConns) == 0 && (m.inbound.listener == nil || !m.inbound.listener.needsRetry) {
		return 0
	}
	return max(m.timers.nextAt-m.readClock(), time.Millisecond)
}

// poller is the epoll set of all sockets.
type poller struct {
	epollFD        int
	socketsByFD    []*socket
	lastGeneration int32
	eventBuf       [64]unix.EpollEvent
}

// socket is a descriptor in the epoll set, with the handler of its events.
type socket struct {
	fd         int
	generation int32
	handler    socketHandler
	tunnel     *tlsTunnel
}

// socketHandler handles the epoll events of a socket.
type socketHandler interface{ handleEvents(events uint32) }

func (m *module) socketAt(fd int) *socket {
	if fd < len(m.poller.socketsByFD) {
		return m.poller.socketsByFD[fd]
	}
	return nil
}

// watchSocket adds a descriptor to the epoll set, or replaces its handler.
func (m *module) watchSocket(fd int, u socketHandler) error {
	if s := m.socketAt(fd); s != nil {
		s.handler = u
		return nil
	}
	for fd >= len(m.poller.socketsByFD) {
		m.poller.socketsByFD = append(m.poller.socketsByFD, nil)
	}
	m.poller.lastGeneration++
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | 1<<31,
		Fd: int32(fd), Pad: m.poller.lastGeneration}
	if err := unix.EpollCtl(m.poller.epollFD, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return err
	}
	m.poller.socketsByFD[fd] = &socket{fd: fd, generation: m.poller.lastGeneration, handler: u}
	return nil
}

// closeSocket closes a descriptor, and aborts its TLS handshake.
func (m *module) closeSocket(fd int) {
	if s := m.socketAt(fd); s != nil {
		if m.poller.socketsByFD[fd] = nil; s.tunnel != nil {
			s.tunnel.abortHandshake()
		}
	}
	unix.Close(fd)
}
