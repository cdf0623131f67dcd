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

// listener accepts connections, which are guests until they have proved who they are.
type listener struct {
	module          *module
	fd              int
	needsRetry      bool // there may be more, or accepting has failed and is tried again
	isFailureLogged bool // of a failure in a row
}

// acceptsPerPoll bounds the time that strangers take of a Poll.
const acceptsPerPoll = 16

// handleEvents implements user.
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
				m.env.Logger.Warn("btl tcp: can't accept connections, trying again", "error", err)
			}
			l.isFailureLogged, l.needsRetry = true, true
			m.scheduleAt(m.timers.now + 50*time.Millisecond)
			return
		}
	}
	l.needsRetry = true
	m.scheduleAt(m.timers.now)
}

// inboundConn is a connection that was accepted, until its handshake is over.
type inboundConn struct {
	module          *module
	fd              int
	remoteAddr      netip.AddrPort
	deadline        time.Duration
	buf             []byte             // what has come of the part that is expected
	isProtocolKnown bool               // it is known whether it speaks TLS
	heldHello       []byte             // its hello, while the card of its process has not come
	handshake       *acceptorHandshake // nil: the hello has not come
	target          linkTarget
}

// linkTarget is what a guest wants to become.
type linkTarget struct {
	peer        *peerConn // nil: there is none yet
	localState  uint64    // of the path here
	remoteState uint64    // of the path there
}

// A guest takes less than 1 KiB here. Of so many the oldest goes first: the job's own need
// milliseconds.
const (
	maxInboundConns = 256
	inboundTimeout  = 5 * time.Second
)

// acceptConn begins the handshake of a connection.
func (m *module) acceptConn(fd int, from netip.AddrPort) {
	g := &inboundConn{module: m, fd: fd, remoteAddr: from, deadline: m.timers.now + inboundTimeout}
	m.inbound.conns = append(m.inbound.conns, g)
	switch local := localAddr(fd).Addr(); {
	case !slices.Contains(m.host.published, local):
		g.refuse(fmt.Sprintf("it came to %v, which is not published", local))
		return
	case len(m.inbound.conns) > maxInboundConns:
		m.inbound.conns[0].refuse("too many connections are in the handshake")
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		g.refuse(err.Error())
		return
	}
	if err := m.watchSocket(fd, g); err != nil {
		g.refuse(err.Error())
		return
	}
	m.scheduleAt(g.deadline)
	g.handleEvents(unix.EPOLLIN) // what it says first is here, mostly
}

// remove takes the guest off the list.
func (g *inboundConn) remove() {
	g.module.inbound.conns = slices.DeleteFunc(g.module.inbound.conns, func(x *inboundConn) bool { return x == g })
}

// refuse ends a guest. It is logged once: who wants to may come ten thousand times.
func (g *inboundConn) refuse(why string) {
	g.close()
	m := g.module
	if m.inbound.refusedCount++; m.inbound.refusedCount == 1 {
		m.env.Logger.Warn("btl tcp: a connection was refused; further ones are only counted", "from", g.remoteAddr.String(), "reason", why)
	}
}

func (g *inboundConn) close() {
	if g.fd < 0 {
		return
	}
	g.remove()
	g.module.closeSocket(g.fd)
	g.fd = -1
}

// handleEvents implements user.
func (g *inboundConn) handleEvents(events uint32) {
	if in, _ := splitEvents(events); !in || !g.detectTLS() {
		return
	}
	for g.fd >= 0 && g.heldHello == nil {
		want := helloSize
		if g.handshake != nil {
			want = proofSize
		}
		b, err := g.module.readHandshake(g.fd, &g.buf, want)
		switch {
		case err != nil && (g.handshake != nil || isHangup(err) && len(g.buf) == 0): // of the job, mostly: it has made another connection
			g.close()
		case err != nil:
			g.refuse(err.Error())
		case b == nil:
			return
		case g.handshake == nil:
			g.handleHello(b)
		default:
			g.handleProof(b)
			return
		}
	}
}

// isHangup reports whether a caller is gone without a word, also while TLS began: not within a
// record, which is io.ErrUnexpectedEOF, and without an alert.
func isHangup(err error) bool {
	return err == errEnd || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// handleHello takes the hello.
func (g *inboundConn) handleHello(b []byte) {
	m := g.module
	h, err := decodeHello(b)
	out := outcomeUnknownPeer
	switch {
	case m.config.security != securityTLS && b[0] == recordHandshake:
		out, err = outcomeOtherSecurity, m.config.security.mismatch(securityTLS)
	case err == nil && h.security == securityTLS && m.config.security == securityTLS && m.tunnelOf(g.fd) == nil:
		err = errors.New("it says that it encrypts, but does not")
	}
	if err != nil {
		if g.send((&answer{security: m.config.security, outcome: out}).encode()) { // it says which version speaks here
			g.refuse(err.Error())
		}
		return
	}
	world, known := m.env.Worlds.ByHash(h.namespaceHash)
	life := framework.Life{ID: framework.MakeProcID(world, h.rank), Nonce: h.callerNonce}
	a := answer{security: m.config.security, outcome: outcomeAccepted, limits: m.localLimits()}
	g.handshake = &acceptorHandshake{hello: h, receivedHello: b, parties: parties{key: m.cardKey, acceptor: m.env.Identity.Proc}}
	switch {
	case h.security != m.config.security:
		a.outcome = outcomeOtherSecurity
	case h.acceptorNonce != m.env.Self.Nonce || !known || life == m.env.Self:
		a.outcome = outcomeUnknownPeer
	default:
		g.handshake.caller = m.env.Worlds.Proc(life.ID)
		if m.config.security == securityTLS && !g.checkTLSKey(life) {
			return
		}
		a.outcome = g.findPeer(life)
		a.acceptorState = g.target.localState
	}
	if !g.send(g.handshake.makeAnswer(a)) || a.outcome == outcomeAccepted {
		return
	}
	switch a.outcome {
	case outcomeOtherSecurity:
		g.refuse(m.config.security.mismatch(h.security).Error())
	case outcomeUnknownPeer:
		g.refuse("it looks for another process, or belongs to another job")
	default:
		g.close()
	}
}

// findPeer decides which pair a caller's link belongs to.
func (g *inboundConn) findPeer(life framework.Life) outcome {
	m, h := g.module, &g.handshake.hello
	p := m.peers.byIncarnation[life]
	if p != nil && p.state.remote != 0 && p.state.remote != h.callerState { // the caller has begun anew
		p = nil
		if h.acceptorState != 0 {
			return outcomeEnded
		}
	} else if h.acceptorState != 0 && (p == nil || p.state.local != h.acceptorState) {
		return outcomeEnded
	}
	g.target = linkTarget{peer: p, remoteState: h.callerState}
	if p == nil {
		g.target.localState = randomState()
		return outcomeAccepted
	}
	g.target.localState = p.state.local
	// Both call: the link of the one with the lower nonce stays.
	if d := p.dialers[h.linkSlot]; d != nil && m.env.Self.Nonce < life.Nonce && slices.ContainsFunc(d.attempts, (*dialAttempt).hasSentHello) {
		return outcomeCrossed
	}
	return outcomeAccepted
}

// handleProof takes the proof: the connection is a link.
func (g *inboundConn) handleProof(b []byte) {
	m, v := g.module, g.handshake
	heard, err := v.checkProof(b)
	if err != nil {
		g.refuse(err.Error())
		return
	}
	world, _ := m.env.Worlds.ByHash(v.hello.namespaceHash)
	life := framework.Life{ID: framework.MakeProcID(world, v.hello.rank), Nonce: v.hello.callerNonce}
	place := g.target
	switch now := g.findPeer(life); {
	case now != outcomeAccepted || g.target.peer != place.peer:
		g.close() // things have changed meanwhile, and it calls again
		return
	case place.peer == nil:
		if old := m.peers.byIncarnation[life]; old != nil {
			old.fail("receive", old.endedByPeerError(" and opened another one"))
		}
		if place.peer = m.peers.byIncarnation[life]; place.peer != nil { // the protocol has
			g.close()
			return
		}
		place.peer = m.newPeerConn(life, nil)
		place.peer.state.local = place.localState
	}
	p := place.peer
	p.state.remote, p.peerLimits = place.remoteState, v.hello.limits
	fd := g.fd
	g.remove()
	g.fd = -1
	l := &link{module: m, peer: p, slot: int(v.hello.linkSlot), fd: fd, remoteAddr: g.remoteAddr, localAddr: localAddr(fd)}
	if n, err := m.writeSocket(fd, v.makeWelcome(p.path.nextExpected)); err != nil || n != welcomeSize {
		m.closeSocket(fd)
		if !p.wasConnected {
			p.close()
		}
		return
	}
	if err := p.addLink(l, heard); err != nil {
		p.fail("receive", err)
	}
}

// send sends a part of the handshake, for which a new connection has room.
func (g *inboundConn) send(b []byte) bool {
	n, err := g.module.writeSocket(g.fd, b)
	if n == len(b) {
		return true
	}
	g.refuse(fmt.Sprintf("handshake: the socket took %d of %d bytes: %v", max(n, 0), len(b), err))
	return false
}
