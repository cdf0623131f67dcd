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
	m     *module
	fd    int
	again bool // there may be more, or accepting has failed and is tried again
	told  bool // of a failure in a row
}

// acceptsPerPoll bounds the time that strangers take of a Poll.
const acceptsPerPoll = 16

// ready implements user.
func (l *listener) ready(uint32) {
	m := l.m
	l.again = false
	for range acceptsPerPoll {
		fd, sa, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			l.told = false
			m.admit(fd, addrOf(sa))
		case err == unix.EAGAIN:
			return
		case err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOBUFS || err == unix.ENOMEM:
			if !l.told {
				m.env.Logger.Warn("btl tcp: can't accept connections, trying again", "error", err)
			}
			l.told, l.again = true, true
			m.at(m.clock + 50*time.Millisecond)
			return
		}
	}
	l.again = true
	m.at(m.clock)
}

// guest is a connection that was accepted, until its handshake is over.
type guest struct {
	m     *module
	fd    int
	from  netip.AddrPort
	until time.Duration
	buf   []byte // what has come of the part that is expected
	begun bool   // it is known whether it speaks TLS
	held  []byte // its hello, while the card of its process has not come
	visit *visit // nil: the hello has not come
	place place
}

// place is what a guest wants to become.
type place struct {
	p   *pair  // nil: there is none yet
	id  uint64 // of the path here
	far uint64 // of the path there
}

// A guest takes less than 1 KiB here. Of so many the oldest goes first: the job's own need
// milliseconds.
const (
	mostGuests   = 256
	guestTimeout = 5 * time.Second
)

// admit begins the handshake of a connection.
func (m *module) admit(fd int, from netip.AddrPort) {
	g := &guest{m: m, fd: fd, from: from, until: m.clock + guestTimeout}
	m.guests = append(m.guests, g)
	switch local := localAddr(fd).Addr(); {
	case !slices.Contains(m.addrs, local):
		g.turnAway(fmt.Sprintf("it came to %v, which is not published", local))
		return
	case len(m.guests) > mostGuests:
		m.guests[0].turnAway("too many connections are in the handshake")
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		g.turnAway(err.Error())
		return
	}
	if err := m.watch(fd, g); err != nil {
		g.turnAway(err.Error())
		return
	}
	m.at(g.until)
	g.ready(unix.EPOLLIN) // what it says first is here, mostly
}

// leave takes the guest off the list.
func (g *guest) leave() {
	g.m.guests = slices.DeleteFunc(g.m.guests, func(x *guest) bool { return x == g })
}

// turnAway ends a guest. It is logged once: who wants to may come ten thousand times.
func (g *guest) turnAway(why string) {
	g.close()
	m := g.m
	if m.strangers++; m.strangers == 1 {
		m.env.Logger.Warn("btl tcp: a connection was refused; further ones are only counted", "from", g.from.String(), "reason", why)
	}
}

func (g *guest) close() {
	if g.fd < 0 {
		return
	}
	g.leave()
	g.m.shut(g.fd)
	g.fd = -1
}

// ready implements user.
func (g *guest) ready(events uint32) {
	if in, _ := readiness(events); !in || !g.begins() {
		return
	}
	for g.fd >= 0 && g.held == nil {
		want := helloSize
		if g.visit != nil {
			want = proofSize
		}
		b, err := g.m.receive(g.fd, &g.buf, want)
		switch {
		case err != nil && (g.visit != nil || hungUp(err) && len(g.buf) == 0): // of the job, mostly: it has made another connection
			g.close()
		case err != nil:
			g.turnAway(err.Error())
		case b == nil:
			return
		case g.visit == nil:
			g.greeted(b)
		default:
			g.proven(b)
			return
		}
	}
}

// hungUp reports whether a caller is gone without a word, also while TLS began: not within a
// record, which is io.ErrUnexpectedEOF, and without an alert.
func hungUp(err error) bool {
	return err == errEnd || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// greeted takes the hello.
func (g *guest) greeted(b []byte) {
	m := g.m
	h, err := decodeHello(b)
	out := stranger
	switch {
	case m.security != encrypted && b[0] == recordHandshake:
		out, err = otherwise, m.security.differs(encrypted)
	case err == nil && h.security == encrypted && m.security == encrypted && m.tunnelAt(g.fd) == nil:
		err = errors.New("it says that it encrypts, but does not")
	}
	if err != nil {
		if g.send((&answer{security: m.security, outcome: out}).encode()) { // it says which version speaks here
			g.turnAway(err.Error())
		}
		return
	}
	world, known := m.env.Worlds.ByHash(h.world)
	life := framework.Life{ID: framework.MakeProcID(world, h.rank), Nonce: h.from}
	a := answer{security: m.security, outcome: accepted, limits: m.limits()}
	g.visit = &visit{hello: h, received: b, parties: parties{key: m.key, acceptor: m.env.Identity.Proc}}
	switch {
	case h.security != m.security:
		a.outcome = otherwise
	case h.to != m.env.Self.Nonce || !known || life == m.env.Self:
		a.outcome = stranger
	default:
		g.visit.caller = m.env.Worlds.Proc(life.ID)
		if m.security == encrypted && !g.pinned(life) {
			return
		}
		a.outcome = g.find(life)
		a.path = g.place.id
	}
	if !g.send(g.visit.reply(a)) || a.outcome == accepted {
		return
	}
	switch a.outcome {
	case otherwise:
		g.turnAway(m.security.differs(h.security).Error())
	case stranger:
		g.turnAway("it looks for another process, or belongs to another job")
	default:
		g.close()
	}
}

// find decides which pair a caller's link belongs to.
func (g *guest) find(life framework.Life) outcome {
	m, h := g.m, &g.visit.hello
	p := m.pairs[life]
	if p != nil && p.far != 0 && p.far != h.path { // the caller has begun anew
		p = nil
		if h.far != 0 {
			return gone
		}
	} else if h.far != 0 && (p == nil || p.id != h.far) {
		return gone
	}
	g.place = place{p: p, far: h.path}
	if p == nil {
		g.place.id = randomNumber()
		return accepted
	}
	g.place.id = p.id
	// Both call: the link of the one with the lower nonce stays.
	if d := p.dials[h.link]; d != nil && m.env.Self.Nonce < life.Nonce && slices.ContainsFunc(d.attempts, (*attempt).called) {
		return crossed
	}
	return accepted
}

// proven takes the proof: the connection is a link.
func (g *guest) proven(b []byte) {
	m, v := g.m, g.visit
	heard, err := v.proven(b)
	if err != nil {
		g.turnAway(err.Error())
		return
	}
	world, _ := m.env.Worlds.ByHash(v.hello.world)
	life := framework.Life{ID: framework.MakeProcID(world, v.hello.rank), Nonce: v.hello.from}
	place := g.place
	switch now := g.find(life); {
	case now != accepted || g.place.p != place.p:
		g.close() // things have changed meanwhile, and it calls again
		return
	case place.p == nil:
		if old := m.pairs[life]; old != nil {
			old.fail("receive", old.endedByPeer(" and opened another one"))
		}
		if place.p = m.pairs[life]; place.p != nil { // the protocol has
			g.close()
			return
		}
		place.p = m.newPair(life, nil)
		place.p.id = place.id
	}
	p := place.p
	p.far, p.limits = place.far, v.hello.limits
	fd := g.fd
	g.leave()
	g.fd = -1
	l := &link{m: m, p: p, place: int(v.hello.link), fd: fd, far: g.from, near: localAddr(fd)}
	if n, err := m.output(fd, v.welcome(p.path.due)); err != nil || n != welcomeSize {
		m.shut(fd)
		if !p.met {
			p.drop()
		}
		return
	}
	if err := p.joined(l, heard); err != nil {
		p.fail("receive", err)
	}
}

// send sends a part of the handshake, for which a new connection has room.
func (g *guest) send(b []byte) bool {
	n, err := g.m.output(g.fd, b)
	if n == len(b) {
		return true
	}
	g.turnAway(fmt.Sprintf("handshake: the socket took %d of %d bytes: %v", max(n, 0), len(b), err))
	return false
}
