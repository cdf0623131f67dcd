package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// closeTimeout is the longest wait for a full socket.
const closeTimeout = 50 * time.Millisecond

// Close implements btl.Module. Peers get a bye behind all committed frames. The system sends the bytes
// that the sockets have taken.
func (m *module) Close() error {
	m.env.Engine.Lock()
	defer m.env.Engine.Unlock()
	m.isClosed = true
	if m.inbound.listener != nil {
		m.closeSocket(m.inbound.listener.fd)
		m.inbound.listener = nil
	}
	for len(m.inbound.handshakingConns) > 0 {
		m.inbound.handshakingConns[0].close()
	}
	peers := m.sortedPeers()
	for _, p := range peers {
		if p.path.countUp() > 0 {
			p.sendControl(kindBye, nil)
			p.writeLinks()
		}
	}
	m.drainSockets(peers)
	for _, p := range peers {
		for _, l := range p.linksBySlot {
			if l != nil {
				l.shutdownWrite()
			}
		}
		p.close()
	}
	if m.tlsHandshakes.completed != nil {
		m.tlsHandshakes.running.Wait()
		m.closeSocket(m.tlsHandshakes.completed.eventFD)
	}
	return unix.Close(m.poller.epollFD)
}

// drainSockets writes until all queues are empty, or no socket makes progress for closeTimeout.
func (m *module) drainSockets(peers []*peerConn) {
	for last := time.Now(); time.Since(last) < closeTimeout; {
		waits := false
		for _, p := range peers {
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
		unix.EpollWait(m.poller.epollFD, m.poller.eventBuf[:], 1)
		for _, p := range peers {
			for i, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
				p.path.queuesBySlot[i].isSocketFull = l != nil && l.state > connOpen
			}
		}
	}
}

// shutdownWrite ends the outgoing stream. It reads the incoming one first, because a close with unread
// data resets the connection, and may lose frames on their way to the peer.
func (l *link) shutdownWrite() {
	unix.Shutdown(l.fd, unix.SHUT_WR)
	b := l.module.bufferPool.get(readBufferSize)
	for range 1000 {
		if n, err := unix.Read(l.fd, b); n <= 0 && err != unix.EINTR {
			break
		}
	}
	l.module.bufferPool.put(b)
}
