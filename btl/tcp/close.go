package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// closeTimeout is how long a session that closes waits for a socket to take what was
// committed and is not out yet; a peer that reads lets it go on.
const closeTimeout = 50 * time.Millisecond

// Close implements btl.Module. Each peer is told, behind all that was committed; the
// system brings what the sockets have taken on its way.
func (m *module) Close() error {
	m.env.Engine.Lock()
	defer m.env.Engine.Unlock()
	m.isClosed = true
	if m.inbound.listener != nil {
		m.closeSocket(m.inbound.listener.fd)
		m.inbound.listener = nil
	}
	for len(m.inbound.conns) > 0 {
		m.inbound.conns[0].close()
	}
	pairs := m.sortedPeers()
	for _, p := range pairs {
		if p.path.countUp() > 0 {
			p.sendControl(kindBye, nil)
			p.writeLinks()
		}
	}
	m.drainSockets(pairs)
	for _, p := range pairs {
		for _, l := range p.links {
			if l != nil {
				l.shutdownWrite()
			}
		}
		p.close()
	}
	if m.tlsHandshakes.completed != nil {
		m.tlsHandshakes.running.Wait() // nobody waits for them: they have ended
		m.closeSocket(m.tlsHandshakes.completed.eventFD)
	}
	return unix.Close(m.poller.epollFD)
}

// drainSockets writes what the sockets have not taken, as long as they take something.
func (m *module) drainSockets(pairs []*peerConn) {
	for last := time.Now(); time.Since(last) < closeTimeout; {
		waits := false
		for _, p := range pairs {
			before := p.path.bytesQueued() + p.bytesEncrypted()
			p.writeLinks()
			if left := p.path.bytesQueued() + p.bytesEncrypted(); left > 0 && p.path.countUp() > 0 {
				waits = true
				if left < before {
					last = time.Now()
				}
			}
		}
		if !waits {
			return
		}
		unix.EpollWait(m.poller.epollFD, m.poller.events[:], 1)
		for _, p := range pairs {
			for i, l := range p.links[:len(p.path.queues)] {
				p.path.queues[i].isBlocked = l != nil && (l.failed != nil || l.broken != nil)
			}
		}
	}
}

// shutdownWrite says that nothing more comes. What the peer has sent is read first: to
// close a socket with something unread resets the connection, and may lose what was sent.
func (l *link) shutdownWrite() {
	unix.Shutdown(l.fd, unix.SHUT_WR)
	b := l.module.buffers.get(readBufferSize)
	for range 1000 {
		if n, err := unix.Read(l.fd, b); n <= 0 && err != unix.EINTR {
			break
		}
	}
	l.module.buffers.put(b)
}
