package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// dialAttempt is a connection that this process makes, until its handshake is over.
type dialAttempt struct {
	peer        *peerConn
	slot        int
	addr        netip.AddrPort
	fd          int
	stage       stage
	handshake   callerHandshake
	startedAt   time.Duration
	deadline    time.Duration // it may last
	buf         []byte        // what has come of the part that is expected
	hasAnswered bool          // the peer itself has answered
}

// attemptTimeout is how long a peer may take to answer at one address: two of the first
// packets may be lost. Where a link was up before, a new attempt begins sooner than the
// system sends the first packet again for the second time: so a network that is back is
// found. If that was in vain a few times the way may be so long.
const (
	attemptTimeout          = 3500 * time.Millisecond
	reconnectAttemptTimeout = 900 * time.Millisecond // without a connection
	shortTimeoutRounds      = 16
)

type stage uint8

const (
	stageConnecting      stage = iota
	stageAwaitingAnswer        // the hello is out
	stageAwaitingWelcome       // the proof is out
)

// startAttempt begins an attempt.
func (p *peerConn) startAttempt(place int, addr netip.AddrPort) (*dialAttempt, error) {
	fd, err := newSocket(addr.Addr().Is6())
	if err != nil {
		return nil, err
	}
	m := p.module
	a := &dialAttempt{peer: p, slot: place, addr: addr, fd: fd, startedAt: m.timers.now, deadline: m.timers.now + attemptTimeout}
	if p.wasConnected && p.dialers[place].failedRounds < shortTimeoutRounds {
		a.deadline = m.timers.now + reconnectAttemptTimeout
	}
	a.handshake.parties = parties{key: p.card.key, caller: m.env.Identity.Proc, acceptor: p.proc}
	a.handshake.hello = hello{
		security: m.config.security, linkSlot: uint8(place), rank: m.env.Identity.Proc.Rank,
		acceptorNonce: p.incarnation.Nonce, namespaceHash: framework.NamespaceHash(m.env.Identity.Proc.Namespace), callerNonce: m.env.Self.Nonce,
		callerState: p.state.local, acceptorState: p.state.remote, limits: m.localLimits(),
	}
	if err := unix.Connect(fd, sockaddr(addr)); err != nil && err != unix.EINPROGRESS && err != unix.EINTR { // a signal does not stop it
		unix.Close(fd)
		return nil, err
	}
	if err := m.watchSocket(fd, a); err != nil {
		unix.Close(fd)
		return nil, err
	}
	m.pacer.countdown = 0
	return a, nil
}

// isTentative reports whether an error may come from an IPv6 address of either end that is new:
// this host has no source address yet, or the peer's does not answer neighbor discovery, which
// takes the system some seconds to notice. A router or a firewall answers at once.
func (a *dialAttempt) isTentative(errno unix.Errno) bool {
	if !a.addr.Addr().Is6() {
		return false
	}
	return errno == unix.EADDRNOTAVAIL || errno == unix.EHOSTUNREACH && a.peer.module.timers.now >= a.startedAt+neighborTimeout
}

// neighborTimeout is less than neighbor discovery takes to fail, three tries of one second.
const neighborTimeout = time.Second

// hasSentHello reports whether the peer may know of the attempt.
func (a *dialAttempt) hasSentHello() bool { return a.stage > stageConnecting }

func (a *dialAttempt) close() {
	if a.fd >= 0 {
		a.peer.module.closeSocket(a.fd)
		a.fd = -1
	}
}

// handleEvents implements user.
func (a *dialAttempt) handleEvents(events uint32) {
	in, out := splitEvents(events)
	if a.fd < 0 {
		return
	}
	if a.stage == stageConnecting {
		if !out {
			return
		}
		if code, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
			errno := unix.Errno(code)
			// A network that is cut comes back; what never was there does not.
			a.fail(errno, errno == unix.ECONNREFUSED || !a.peer.wasConnected && !a.isTentative(errno))
			return
		}
		// The host listens still, whether or not its process says something: one that is
		// stopped is not lost.
		p, now := a.peer, a.peer.module.timers.now
		p.peerAliveAt = max(p.peerAliveAt, now)
		if err := a.startTLS(); err != nil {
			a.fail(err, false)
			return
		}
		a.stage = stageAwaitingAnswer
		if a.deadline = a.startedAt + attemptTimeout; p.wasConnected {
			a.deadline = min(a.deadline, now+p.module.config.retryTimeout/2)
		}
		p.module.scheduleAt(a.deadline)
		if !a.send(a.handshake.startHello()) {
			return
		}
	}
	for in && a.fd >= 0 {
		want := answerSize
		if a.stage == stageAwaitingWelcome {
			want = welcomeSize
		}
		b, err := a.peer.module.readHandshake(a.fd, &a.buf, want)
		switch {
		case isPermanent(err):
			a.fail(err, true)
		case err != nil:
			a.fail(fmt.Errorf("it closed the connection in the handshake: %w", err), false)
		case b == nil:
			return
		case a.stage == stageAwaitingAnswer:
			a.handleAnswer(b)
		default:
			a.handleWelcome(b)
			return
		}
	}
}

// handleAnswer takes the answer.
func (a *dialAttempt) handleAnswer(b []byte) {
	err := a.handshake.checkAnswer(b)
	p, answer := a.peer, &a.handshake.answer
	a.hasAnswered = err == nil && (answer.outcome == outcomeAccepted || answer.outcome == outcomeCrossed || answer.outcome == outcomeNoCard)
	switch {
	case err != nil:
		a.fail(err, true)
	case answer.outcome == outcomeEnded:
		p.fail("connect", p.endedByPeerError(""))
	case answer.outcome == outcomeCrossed:
		a.fail(errors.New(outcomeNames[outcomeCrossed]), false)
	case answer.outcome != outcomeAccepted:
		a.fail(errors.New(outcomeNames[answer.outcome]), answer.outcome != outcomeNoCard)
	case p.state.remote != 0 && answer.acceptorState != p.state.remote:
		p.fail("connect", p.endedByPeerError(" and opened another one"))
	default:
		p.dialers[a.slot].cancelExcept(a) // the first one that gets so far is it
		a.stage = stageAwaitingWelcome
		a.send(a.handshake.makeProof(p.path.nextExpected))
	}
}

// handleWelcome takes the welcome: the connection is a link.
func (a *dialAttempt) handleWelcome(b []byte) {
	heard, err := a.handshake.checkWelcome(b)
	if err != nil {
		a.fail(err, true)
		return
	}
	p := a.peer
	p.state.remote, p.peerLimits = a.handshake.answer.acceptorState, a.handshake.answer.limits
	l := &link{module: p.module, peer: p, slot: a.slot, fd: a.fd, remoteAddr: a.addr, localAddr: localAddr(a.fd), isCaller: true}
	a.fd = -1
	if err := p.addLink(l, heard); err != nil {
		p.fail("connect", err)
	}
}

// send sends a part of the handshake, for which a new connection has room.
func (a *dialAttempt) send(b []byte) bool {
	n, err := a.peer.module.writeSocket(a.fd, b)
	if n == len(b) {
		return true
	}
	a.fail(fmt.Errorf("handshake: the socket took %d of %d bytes: %w", max(n, 0), len(b), err), false)
	return false
}

// fail ends the attempt.
func (a *dialAttempt) fail(err error, final bool) {
	p := a.peer
	a.close()
	d := p.dialers[a.slot]
	if d == nil || p.isClosed {
		return
	}
	d.attempts = slices.DeleteFunc(d.attempts, func(x *dialAttempt) bool { return x == a })
	p.recordFailure(d, failure{a.addr, err, final})
	if d.nextAddrAt = 0; a.hasAnswered { // what was in the way is over soon: another address would be second best
		d.addrsTried = len(d.addrs)
	}
	p.module.scheduleAt(0) // the next address, or the next round
}

var errEnd = errors.New("end of file")

// readHandshake reads one part of a handshake: want bytes, or nil if they are not all here.
func (m *module) readHandshake(fd int, buf *[]byte, want int) ([]byte, error) {
	if cap(*buf) < want {
		b := make([]byte, len(*buf), want)
		copy(b, *buf)
		*buf = b
	}
	for len(*buf) < want {
		n, err := m.readSocket(fd, (*buf)[len(*buf):want])
		switch {
		case n > 0:
			*buf = (*buf)[:len(*buf)+n]
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return nil, nil
		case err == nil:
			return nil, errEnd
		default:
			return nil, err
		}
	}
	b := *buf
	*buf = nil
	return b, nil
}
