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

// dialAttempt is an outgoing connection until the end of its handshake.
type dialAttempt struct {
	peer         *peerConn
	slot         int
	remoteAddr   netip.AddrPort
	fd           int
	stage        stage
	handshake    callerHandshake
	startedAt    time.Duration
	expiresAt    time.Duration
	handshakeBuf []byte
	hasAnswered  bool
}

// attemptTimeout is the timeout of one address. It allows for the loss of two packets. A reconnect uses a
// shorter one until the host accepts, so that a network that recovers is found before the system's third
// SYN. After shortTimeoutRounds the round trip may be too long for that.
const (
	attemptTimeout          = 3500 * time.Millisecond
	reconnectAttemptTimeout = 900 * time.Millisecond
	shortTimeoutRounds      = 16
)

type stage uint8

const (
	stageConnecting stage = iota
	stageAwaitingAnswer
	stageAwaitingWelcome
)

// startAttempt starts a connection to an address.
func (p *peerConn) startAttempt(slot int, addr netip.AddrPort) (*dialAttempt, error) {
	fd, err := newSocket(addr.Addr().Is6())
	if err != nil {
		return nil, err
	}
	m := p.module
	a := &dialAttempt{peer: p, slot: slot, remoteAddr: addr, fd: fd, startedAt: m.timers.lastClock, expiresAt: m.timers.lastClock + attemptTimeout}
	if p.wasConnected && p.dialersBySlot[slot].consecutiveFailures < shortTimeoutRounds {
		a.expiresAt = m.timers.lastClock + reconnectAttemptTimeout
	}
	a.handshake.parties = parties{cardKey: p.card.authKey, caller: m.env.Identity.Proc, acceptor: p.proc}
	a.handshake.hello = hello{
		security: m.config.security, linkSlot: uint8(slot), rank: m.env.Identity.Proc.Rank,
		acceptorNonce: p.incarnation.Nonce, namespaceHash: framework.NamespaceHash(m.env.Identity.Proc.Namespace), callerNonce: m.env.Self.Nonce,
		callerState: p.stateIDs.local, acceptorState: p.stateIDs.remote, limits: m.localLimits(),
	}
	if err := unix.Connect(fd, sockaddr(addr)); err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		unix.Close(fd)
		return nil, err
	}
	if err := m.watchSocket(fd, a); err != nil {
		unix.Close(fd)
		return nil, err
	}
	m.pacer.pollsUntilSockets = 0
	return a, nil
}

// isTentative reports whether an error may come from a new IPv6 address at either end. This host has no
// source address yet, or neighbor discovery of the peer's has failed, which takes some seconds. A router
// or firewall answers at once.
func (a *dialAttempt) isTentative(errno unix.Errno) bool {
	if !a.remoteAddr.Addr().Is6() {
		return false
	}
	return errno == unix.EADDRNOTAVAIL || errno == unix.EHOSTUNREACH && a.peer.module.timers.lastClock >= a.startedAt+neighborTimeout
}

// neighborTimeout is below the duration of failed neighbor discovery, three tries of one second.
const neighborTimeout = time.Second

// hasSentHello reports whether the peer may have received the hello.
func (a *dialAttempt) hasSentHello() bool { return a.stage > stageConnecting }

func (a *dialAttempt) close() {
	if a.fd >= 0 {
		a.peer.module.closeSocket(a.fd)
		a.fd = -1
	}
}

// handleEvents implements socketHandler.
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
			// A network that is down may recover. An address that never worked does not.
			a.fail(errno, errno == unix.ECONNREFUSED || !a.peer.wasConnected && !a.isTentative(errno))
			return
		}
		// The host accepts connections, so that a stopped process counts as alive.
		p, now := a.peer, a.peer.module.timers.lastClock
		p.peerAliveAt = max(p.peerAliveAt, now)
		if err := a.startTLS(); err != nil {
			a.fail(err, false)
			return
		}
		a.stage = stageAwaitingAnswer
		if a.expiresAt = a.startedAt + attemptTimeout; p.wasConnected {
			a.expiresAt = min(a.expiresAt, now+p.module.config.retryTimeout/2)
		}
		p.module.scheduleAt(a.expiresAt)
		if !a.send(a.handshake.startHello()) {
			return
		}
	}
	for in && a.fd >= 0 {
		size := answerSize
		if a.stage == stageAwaitingWelcome {
			size = welcomeSize
		}
		b, err := a.peer.module.readHandshake(a.fd, &a.handshakeBuf, size)
		switch {
		case isPermanent(err):
			a.fail(err, true)
		case err != nil:
			a.fail(fmt.Errorf("connection closed in the handshake: %w", err), false)
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

// handleAnswer handles the acceptor's answer.
func (a *dialAttempt) handleAnswer(b []byte) {
	err := a.handshake.checkAnswer(b)
	p, answer := a.peer, &a.handshake.receivedAnswer
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
	case p.stateIDs.remote != 0 && answer.acceptorState != p.stateIDs.remote:
		p.fail("connect", p.endedByPeerError(" and opened another one"))
	default:
		// The first answer wins.
		p.dialersBySlot[a.slot].cancelExcept(a)
		a.stage = stageAwaitingWelcome
		a.send(a.handshake.makeProof(p.path.nextExpected))
	}
}

// handleWelcome turns the connection into a link.
func (a *dialAttempt) handleWelcome(b []byte) {
	ackedUpTo, err := a.handshake.checkWelcome(b)
	if err != nil {
		a.fail(err, true)
		return
	}
	p := a.peer
	p.stateIDs.remote, p.peerLimits = a.handshake.receivedAnswer.acceptorState, a.handshake.receivedAnswer.limits
	l := &link{module: p.module, peer: p, slot: a.slot, fd: a.fd, remoteAddr: a.remoteAddr, localAddr: localAddr(a.fd), isCaller: true}
	a.fd = -1
	if err := p.addLink(l, ackedUpTo); err != nil {
		p.fail("connect", err)
	}
}

// send writes a handshake part, for which a new socket has room.
func (a *dialAttempt) send(b []byte) bool {
	n, err := a.peer.module.writeSocket(a.fd, b)
	if n == len(b) {
		return true
	}
	a.fail(fmt.Errorf("handshake: the socket took %d of %d bytes: %w", max(n, 0), len(b), err), false)
	return false
}

// fail closes the attempt, and records the failure.
func (a *dialAttempt) fail(err error, isFinal bool) {
	p := a.peer
	a.close()
	d := p.dialersBySlot[a.slot]
	if d == nil || p.isClosed {
		return
	}
	d.runningAttempts = slices.DeleteFunc(d.runningAttempts, func(x *dialAttempt) bool { return x == a })
	p.recordFailure(d, failure{a.remoteAddr, err, isFinal})
	// The cause is temporary, and another address would be second best.
	if d.nextAddrAt = 0; a.hasAnswered {
		d.addrsTried = len(d.roundAddrs)
	}
	// Next address or next round.
	p.module.scheduleAt(0)
}

var errEnd = errors.New("end of file")

// readHandshake reads a handshake part of want bytes. It returns nil until all have arrived.
func (m *module) readHandshake(fd int, buf *[]byte, size int) ([]byte, error) {
	if cap(*buf) < size {
		b := make([]byte, len(*buf), size)
		copy(b, *buf)
		*buf = b
	}
	for len(*buf) < size {
		n, err := m.readSocket(fd, (*buf)[len(*buf):size])
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
