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

// attempt is a connection that this process makes, until its handshake is over.
type attempt struct {
	p     *pair
	place int
	addr  netip.AddrPort
	fd    int
	stage stage
	call  call
	begun time.Duration
	until time.Duration // it may last
	buf   []byte        // what has come of the part that is expected
	found bool          // the peer itself has answered
}

// attemptTimeout is how long a peer may take to answer at one address: two of the first
// packets may be lost. Where a link was up before, a new attempt begins sooner than the
// system sends the first packet again for the second time: so a network that is back is
// found. If that was in vain a few times the way may be so long.
const (
	attemptTimeout = 3500 * time.Millisecond
	againTimeout   = 900 * time.Millisecond // without a connection
	hastyRounds    = 16
)

type stage uint8

const (
	connecting stage = iota
	answering        // the hello is out
	welcoming        // the proof is out
)

// call begins an attempt.
func (p *pair) call(place int, addr netip.AddrPort) (*attempt, error) {
	fd, err := newSocket(addr.Addr().Is6())
	if err != nil {
		return nil, err
	}
	m := p.m
	a := &attempt{p: p, place: place, addr: addr, fd: fd, begun: m.clock, until: m.clock + attemptTimeout}
	if p.met && p.dials[place].rounds < hastyRounds {
		a.until = m.clock + againTimeout
	}
	a.call.parties = parties{key: p.card.key, caller: m.env.Identity.Proc, acceptor: p.proc}
	a.call.hello = hello{
		security: m.security, link: uint8(place), rank: m.env.Identity.Proc.Rank,
		to: p.peer.Nonce, world: framework.NamespaceHash(m.env.Identity.Proc.Namespace), from: m.env.Self.Nonce,
		path: p.id, far: p.far, limits: m.limits(),
	}
	if err := unix.Connect(fd, sockaddr(addr)); err != nil && err != unix.EINPROGRESS && err != unix.EINTR { // a signal does not stop it
		unix.Close(fd)
		return nil, err
	}
	if err := m.watch(fd, a); err != nil {
		unix.Close(fd)
		return nil, err
	}
	m.polls = 0
	return a, nil
}

// isTentative reports whether an error may come from an IPv6 address of either end that is new:
// this host has no source address yet, or the peer's does not answer neighbor discovery, which
// takes the system some seconds to notice. A router or a firewall answers at once.
func (a *attempt) isTentative(errno unix.Errno) bool {
	if !a.addr.Addr().Is6() {
		return false
	}
	return errno == unix.EADDRNOTAVAIL || errno == unix.EHOSTUNREACH && a.p.m.clock >= a.begun+neighborPatience
}

// neighborPatience is less than neighbor discovery takes to fail, three tries of one second.
const neighborPatience = time.Second

// called reports whether the peer may know of the attempt.
func (a *attempt) called() bool { return a.stage > connecting }

func (a *attempt) close() {
	if a.fd >= 0 {
		a.p.m.shut(a.fd)
		a.fd = -1
	}
}

// ready implements user.
func (a *attempt) ready(events uint32) {
	in, out := readiness(events)
	if a.fd < 0 {
		return
	}
	if a.stage == connecting {
		if !out {
			return
		}
		if code, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
			errno := unix.Errno(code)
			// A network that is cut comes back; what never was there does not.
			a.fail(errno, errno == unix.ECONNREFUSED || !a.p.met && !a.isTentative(errno))
			return
		}
		// The host listens still, whether or not its process says something: one that is
		// stopped is not lost.
		p, now := a.p, a.p.m.clock
		p.alive = max(p.alive, now)
		if err := a.encrypt(); err != nil {
			a.fail(err, false)
			return
		}
		a.stage = answering
		if a.until = a.begun + attemptTimeout; p.met {
			a.until = min(a.until, now+p.m.retryTimeout/2)
		}
		p.m.at(a.until)
		if !a.send(a.call.begin()) {
			return
		}
	}
	for in && a.fd >= 0 {
		want := answerSize
		if a.stage == welcoming {
			want = welcomeSize
		}
		b, err := a.p.m.receive(a.fd, &a.buf, want)
		switch {
		case isFinal(err):
			a.fail(err, true)
		case err != nil:
			a.fail(fmt.Errorf("it closed the connection in the handshake: %w", err), false)
		case b == nil:
			return
		case a.stage == answering:
			a.answered(b)
		default:
			a.welcomed(b)
			return
		}
	}
}

// answered takes the answer.
func (a *attempt) answered(b []byte) {
	err := a.call.answered(b)
	p, answer := a.p, &a.call.answer
	a.found = err == nil && (answer.outcome == accepted || answer.outcome == crossed || answer.outcome == unknown)
	switch {
	case err != nil:
		a.fail(err, true)
	case answer.outcome == gone:
		p.fail("connect", p.endedByPeer(""))
	case answer.outcome == crossed:
		a.fail(errors.New(outcomes[crossed]), false)
	case answer.outcome != accepted:
		a.fail(errors.New(outcomes[answer.outcome]), answer.outcome != unknown)
	case p.far != 0 && answer.path != p.far:
		p.fail("connect", p.endedByPeer(" and opened another one"))
	default:
		p.dials[a.place].cancel(a) // the first one that gets so far is it
		a.stage = welcoming
		a.send(a.call.prove(p.path.due))
	}
}

// welcomed takes the welcome: the connection is a link.
func (a *attempt) welcomed(b []byte) {
	heard, err := a.call.welcomed(b)
	if err != nil {
		a.fail(err, true)
		return
	}
	p := a.p
	p.far, p.limits = a.call.answer.path, a.call.answer.limits
	l := &link{m: p.m, p: p, place: a.place, fd: a.fd, far: a.addr, near: localAddr(a.fd), called: true}
	a.fd = -1
	if err := p.joined(l, heard); err != nil {
		p.fail("connect", err)
	}
}

// send sends a part of the handshake, for which a new connection has room.
func (a *attempt) send(b []byte) bool {
	n, err := a.p.m.output(a.fd, b)
	if n == len(b) {
		return true
	}
	a.fail(fmt.Errorf("handshake: the socket took %d of %d bytes: %w", max(n, 0), len(b), err), false)
	return false
}

// fail ends the attempt.
func (a *attempt) fail(err error, final bool) {
	p := a.p
	a.close()
	d := p.dials[a.place]
	if d == nil || p.over {
		return
	}
	d.attempts = slices.DeleteFunc(d.attempts, func(x *attempt) bool { return x == a })
	p.failed(d, failure{a.addr, err, final})
	if d.beside = 0; a.found { // what was in the way is over soon: another address would be second best
		d.begun = len(d.addrs)
	}
	p.m.at(0) // the next address, or the next round
}

var errEnd = errors.New("end of file")

// receive reads one part of a handshake: want bytes, or nil if they are not all here.
func (m *module) receive(fd int, buf *[]byte, want int) ([]byte, error) {
	if cap(*buf) < want {
		b := make([]byte, len(*buf), want)
		copy(b, *buf)
		*buf = b
	}
	for len(*buf) < want {
		n, err := m.input(fd, (*buf)[len(*buf):want])
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
