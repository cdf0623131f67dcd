package tcp

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// listener accepts connections.
type listener struct {
	module          *module
	fd              int
	needsRetry      bool
	isFailureLogged bool
}

// acceptsPerPoll bounds the time of one poll.
const acceptsPerPoll = 16

// handleEvents implements socketHandler.
func (l *listener) handleEvents(uint32) {
	m := l.module
	l.needsRetry = false
	for range acceptsPerPoll {
		fd, sa, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			l.isFailureLogged = false
			m.acceptConn(fd, addrOf(sa))
		case err == unix.EAGAIN:
			return
		case err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOBUFS || err == unix.ENOMEM:
			if !l.isFailureLogged {
				m.env.Logger.Warn("btl tcp: cannot accept connections, retrying", "error", err)
			}
			l.isFailureLogged, l.needsRetry = true, true
			m.scheduleAt(m.timers.lastClock + 50*time.Millisecond)
			return
		}
	}
	l.needsRetry = true
	m.scheduleAt(m.timers.lastClock)
}

// inboundConn is an accepted connection until the end of its handshake.
type inboundConn struct {
	module            *module
	fd                int
	remoteAddr        netip.AddrPort
	handshakeDeadline time.Duration
	handshakeBuf      []byte
	isProtocolKnown   bool
	heldHello         []byte
	// nil before the hello.
	handshake *acceptorHandshake
	target    linkTarget
}

// linkTarget is the path that an inbound connection becomes a link of.
type linkTarget struct {
	// nil for a new peer.
	peer        *peerConn
	localState  uint64
	remoteState uint64
}

// An inbound connection takes less than 1 KiB. Those of the job need milliseconds, so the oldest
// connection closes first.
const (
	maxInboundConns = 256
	inboundTimeout  = 5 * time.Second
)

// acceptConn starts the handshake of an accepted connection.
func (m *module) acceptConn(fd int, from netip.AddrPort) {
	c := &inboundConn{module: m, fd: fd, remoteAddr: from, handshakeDeadline: m.timers.lastClock + inboundTimeout}
	m.inbound.handshakingConns = append(m.inbound.handshakingConns, c)
	switch local := localAddr(fd).Addr(); {
	case !slices.Contains(m.host.publishedAddrs, local):
		c.refuse(fmt.Sprintf("it arrived at %v, which is not published", local))
		return
	case len(m.inbound.handshakingConns) > maxInboundConns:
		m.inbound.handshakingConns[0].refuse("too many connections in the handshake")
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		c.refuse(err.Error())
		return
	}
	if err := m.watchSocket(fd, c); err != nil {
		c.refuse(err.Error())
		return
	}
	m.scheduleAt(c.handshakeDeadline)
	// The hello is often here already.
	c.handleEvents(unix.EPOLLIN)
}

// remove removes the connection from the list of the module.
func (c *inboundConn) remove() {
	c.module.inbound.handshakingConns = slices.DeleteFunc(c.module.inbound.handshakingConns, func(x *inboundConn) bool { return x == c })
}

// refuse closes the connection. Only the first refusal is logged, so that a flood does not fill the log.
func (c *inboundConn) refuse(reason string) {
	c.close()
	m := c.module
	if m.inbound.refusedCount++; m.inbound.refusedCount == 1 {
		m.env.Logger.Warn("btl tcp: a connection was refused; further ones are only counted", "from", c.remoteAddr.String(), "reason", reason)
	}
}

func (c *inboundConn) close() {
	if c.fd < 0 {
		return
	}
	c.remove()
	c.module.closeSocket(c.fd)
	c.fd = -1
}

// handleEvents implements socketHandler.
func (c *inboundConn) handleEvents(events uint32) {
	if in, _ := splitEvents(events); !in || !c.detectTLS() {
		return
	}
	for c.fd >= 0 && c.heldHello == nil {
		size := helloSize
		if c.handshake != nil {
			size = proofSize
		}
		b, err := c.module.readHandshake(c.fd, &c.handshakeBuf, size)
		switch {
		// A caller of the job closes if another connection was faster.
		case err != nil && (c.handshake != nil || isHangup(err) && len(c.handshakeBuf) == 0):
			c.close()
		case err != nil:
			c.refuse(err.Error())
		case b == nil:
			return
		case c.handshake == nil:
			c.handleHello(b)
		default:
			c.handleProof(b)
			return
		}
	}
}

// isHangup reports whether the caller closed between two records, without an alert.
func isHangup(err error) bool {
	return err == errEnd || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// handleHello answers the hello.
func (c *inboundConn) handleHello(b []byte) {
	m := c.module
	h, err := decodeHello(b)
	rejected := outcomeUnknownPeer
	switch {
	case m.config.security != securityTLS && b[0] == recordHandshake:
		rejected, err = outcomeOtherSecurity, m.config.security.mismatch(securityTLS)
	case err == nil && h.security == securityTLS && m.config.security == securityTLS && m.tunnelOf(c.fd) == nil:
		err = errors.New("its hello names TLS, but it is not encrypted")
	}
	if err != nil {
		// The answer has the version of this process.
		if c.send((&answer{security: m.config.security, outcome: rejected}).encode()) {
			c.refuse(err.Error())
		}
		return
	}
	world, known := m.env.Worlds.ByHash(h.namespaceHash)
	incarnation := framework.Incarnation{ID: framework.MakeProcID(world, h.rank), Nonce: h.callerNonce}
	a := answer{security: m.config.security, outcome: outcomeAccepted, limits: m.localLimits()}
	c.handshake = &acceptorHandshake{hello: h, receivedHello: b, parties: parties{cardKey: m.cardKey, acceptor: m.env.Identity.Proc}}
	switch {
	case h.security != m.config.security:
		a.outcome = outcomeOtherSecurity
	case h.acceptorNonce != m.env.Self.Nonce || !known || incarnation == m.env.Self:
		a.outcome = outcomeUnknownPeer
	default:
		c.handshake.caller = m.env.Worlds.Proc(incarnation.ID)
		if m.config.security == securityTLS && !c.checkTLSKey(incarnation) {
			return
		}
		a.outcome = c.findPeer(incarnation)
		a.acceptorState = c.target.localState
	}
	if !c.send(c.handshake.makeAnswer(a)) || a.outcome == outcomeAccepted {
		return
	}
	switch a.outcome {
	case outcomeOtherSecurity:
		c.refuse(m.config.security.mismatch(h.security).Error())
	case outcomeUnknownPeer:
		c.refuse("it dials another process, or belongs to another job")
	default:
		c.close()
	}
}

// findPeer finds the path of a caller's link, and decides the outcome.
func (c *inboundConn) findPeer(incarnation framework.Incarnation) outcome {
	m, h := c.module, &c.handshake.hello
	p := m.peers.byIncarnation[incarnation]
	// The caller has a new state.
	if p != nil && p.stateIDs.remote != 0 && p.stateIDs.remote != h.callerState {
		p = nil
		if h.acceptorState != 0 {
			return outcomeEnded
		}
	} else if h.acceptorState != 0 && (p == nil || p.stateIDs.local != h.acceptorState) {
		return outcomeEnded
	}
	c.target = linkTarget{peer: p, remoteState: h.callerState}
	if p == nil {
		c.target.localState = randomState()
		return outcomeAccepted
	}
	c.target.localState = p.stateIDs.local
	// If both ends dial, the link of the lower nonce stays.
	if d := p.dialersBySlot[h.linkSlot]; d != nil && m.env.Self.Nonce < incarnation.Nonce && slices.ContainsFunc(d.runningAttempts, (*dialAttempt).hasSentHello) {
		return outcomeCrossed
	}
	return outcomeAccepted
}

// handleProof turns the connection into a link.
func (c *inboundConn) handleProof(b []byte) {
	m, v := c.module, c.handshake
	ackedUpTo, err := v.checkProof(b)
	if err != nil {
		c.refuse(err.Error())
		return
	}
	world, _ := m.env.Worlds.ByHash(v.hello.namespaceHash)
	incarnation := framework.Incarnation{ID: framework.MakeProcID(world, v.hello.rank), Nonce: v.hello.callerNonce}
	target := c.target
	switch now := c.findPeer(incarnation); {
	case now != outcomeAccepted || c.target.peer != target.peer:
		// The state has changed meanwhile, and the caller dials again.
		c.close()
		return
	case target.peer == nil:
		if old := m.peers.byIncarnation[incarnation]; old != nil {
			old.fail("receive", old.endedByPeerError(" and opened another one"))
		}
		// The upcall has made one.
		if target.peer = m.peers.byIncarnation[incarnation]; target.peer != nil {
			c.close()
			return
		}
		target.peer = m.newPeerConn(incarnation, nil)
		target.peer.stateIDs.local = target.localState
	}
	p := target.peer
	p.stateIDs.remote, p.peerLimits = target.remoteState, v.hello.limits
	fd := c.fd
	c.remove()
	c.fd = -1
	l := &link{module: m, peer: p, slot: int(v.hello.linkSlot), fd: fd, remoteAddr: c.remoteAddr, localAddr: localAddr(fd)}
	if n, err := m.writeSocket(fd, v.makeWelcome(p.path.nextExpected)); err != nil || n != welcomeSize {
		m.closeSocket(fd)
		if !p.wasConnected {
			p.close()
		}
		return
	}
	if err := p.addLink(l, ackedUpTo); err != nil {
		p.fail("receive", err)
	}
}

// send writes a handshake part, for which a new socket has room.
func (c *inboundConn) send(b []byte) bool {
	n, err := c.module.writeSocket(c.fd, b)
	if n == len(b) {
		return true
	}
	c.refuse(fmt.Sprintf("handshake: the socket took %d of %d bytes: %v", max(n, 0), len(b), err))
	return false
}
