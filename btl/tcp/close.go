package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// closePatience is how long a session that closes waits for a socket to take what was
// committed and is not out yet; a peer that reads lets it go on.
const closePatience = 50 * time.Millisecond

// Close implements btl.Module. Each peer is told, behind all that was committed; the
// system brings what the sockets have taken on its way.
func (m *module) Close() error {
	m.env.Engine.Lock()
	defer m.env.Engine.Unlock()
	m.closed = true
	if m.listener != nil {
		m.shut(m.listener.fd)
		m.listener = nil
	}
	for len(m.guests) > 0 {
		m.guests[0].close()
	}
	pairs := m.list()
	for _, p := range pairs {
		if p.path.ups() > 0 {
			p.control(kindBye, nil)
			p.write()
		}
	}
	m.drain(pairs)
	for _, p := range pairs {
		for _, l := range p.links {
			if l != nil {
				l.finishWriting()
			}
		}
		p.drop()
	}
	if m.shaken != nil {
		m.handshakes.Wait() // nobody waits for them: they have ended
		m.shut(m.shaken.fd)
	}
	return unix.Close(m.epoll)
}

// drain writes what the sockets have not taken, as long as they take something.
func (m *module) drain(pairs []*pair) {
	for last := time.Now(); time.Since(last) < closePatience; {
		waits := false
		for _, p := range pairs {
			before := p.path.toWrite() + p.kept()
			p.write()
			if left := p.path.toWrite() + p.kept(); left > 0 && p.path.ups() > 0 {
				waits = true
				if left < before {
					last = time.Now()
				}
			}
		}
		if !waits {
			return
		}
		unix.EpollWait(m.epoll, m.events[:], 1)
		for _, p := range pairs {
			for i, l := range p.links[:len(p.path.links)] {
				p.path.links[i].blocked = l != nil && (l.failed != nil || l.broken != nil)
			}
		}
	}
}

// finishWriting says that nothing more comes. What the peer has sent is read first: to
// close a socket with something unread resets the connection, and may lose what was sent.
func (l *link) finishWriting() {
	unix.Shutdown(l.fd, unix.SHUT_WR)
	b := l.m.pool.get(bufferSize)
	for range 1000 {
		if n, err := unix.Read(l.fd, b); n <= 0 && err != unix.EINTR {
			break
		}
	}
	l.m.pool.put(b)
}
