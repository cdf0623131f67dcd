package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// pair is this process and a peer: the state of their path, and its links.
type pair struct {
	m    *module
	peer framework.Life
	proc framework.Proc
	card *blob // nil: not known, so that only the peer can connect

	id, far uint64 // which state of a path this is, here and there; far 0: not known
	path    path
	out     outbox
	links   [mostLinks]*link
	met     bool   // a link was up
	had     uint16 // at which places
	limits  limits
	over    bool // all is closed

	// The path to the peer.
	endpoint *endpoint // nil: there is none
	opened   uint64    // paths, so far: the number of the last one
	limited  bool      // the protocol knows the peer's limits: frames may go

	// The path from the peer.
	up     btl.Inbound // nil: there is none
	placer btl.Placer  // of up; nil: it can't
	number uint64      // of the path
	source source

	stash    map[uint64]stashed // frames that came before their turn
	stashed  int                // bytes
	hasty    bool               // they are not left in their sockets
	progress time.Duration      // a frame that was due has come last

	dirty      bool
	visit      uint64        // of the module, in which something went out at once
	bursts     int           // that went out at once in it
	asked      uint64        // the peer was asked to confirm all before
	owedSince  time.Duration // that something is to be confirmed; 0: nothing is
	refused    error         // the peer has said that it reads the path no more
	broken     error         // the pair ends with the next Poll
	reconnects int
	stall      stall

	revival
}

// stashed is a frame that came before its turn.
type stashed struct {
	h     header
	bytes []byte
}

// newPair makes one, with or without card.
func (m *module) newPair(peer framework.Life, card *blob) *pair {
	p := &pair{m: m, peer: peer, proc: m.env.Worlds.Proc(peer.ID), stash: map[uint64]stashed{}}
	for p.id == 0 {
		p.id = randomNumber()
	}
	if card != nil {
		p.knows(card)
	}
	p.path.window = m.window
	p.out.pool = &m.pool
	p.source.p = p
	p.revival.begin(m.now())
	m.pairs[peer] = p
	m.polls = 0
	return p
}

func randomNumber() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return le.Uint64(b[:])
}

// touch has the next Poll look after the pair.
func (p *pair) touch() {
	if !p.dirty && !p.over {
		p.dirty = true
		p.m.dirty = append(p.m.dirty, p)
		p.m.env.Engine.Nudge()
	}
}

// joined makes a connection whose handshake is over a link, or closes it. The peer has
// received all before heard.
func (p *pair) joined(l *link, heard uint64) error {
	now := p.m.now()
	if old := p.links[l.place]; old != nil { // its end was not noticed yet
		old.end()
		p.stall.lost(old)
		p.gone = fmt.Sprintf("%v: the peer has connected again", old)
		p.tell("lost: " + p.gone)
	}
	err := tune(l.fd)
	if err == nil {
		err = p.m.watch(l.fd, l)
	}
	if err == nil {
		err = p.path.up(l.place, heard)
	}
	if err == nil {
		err = p.stalled(now)
	}
	if err != nil {
		p.m.shut(l.fd)
		return err
	}
	p.path.ahead = most(p.window())
	p.path.window = min(p.m.window, max(p.window(), mostDeclared)) // stashLimit of the peer
	if p.links[l.place] = l; p.had&(1<<l.place) != 0 {
		p.reconnected(l, now)
	}
	p.had |= 1 << l.place
	l.encrypted = p.m.tunnelAt(l.fd) != nil
	l.since, l.heard, p.met = now, now, true
	p.asked = 0
	p.revival.up(l.place, now, l.far.Addr())
	l.list()
	p.tell("up: " + l.String())
	p.touch()
	p.limit()
	p.m.at(now)
	return nil
}

// reconnected counts a link in place of a lost one. The first one is logged, unless the loss was.
func (p *pair) reconnected(l *link, now time.Duration) {
	p.stall.reconnected(&p.path, now)
	if p.reconnects++; p.reconnects == 1 && p.path.damages == 0 {
		p.m.env.Logger.Warn("btl tcp: lost a connection and reconnected; further reconnects are only counted", "peer", p.proc.String(), "link", l.String(), "lost", p.gone)
	}
}

// limit tells the protocol the peer's limits, once for each path to it: before that no
// frame goes.
func (p *pair) limit() {
	if p.limited || !p.met || p.endpoint == nil {
		return
	}
	p.limited = true
	if frame := int(p.limits.frame); frame < p.m.frame {
		p.m.env.Upcall.Limits(p.peer, min(p.m.eager, frame), frame)
	}
}

// received counts a frame that was due.
func (p *pair) received(size int) {
	p.path.received(size)
	p.progress = p.m.clock
	if p.path.owes(p.window()) {
		p.touch()
	} else if p.owedSince == 0 {
		p.owedSince = p.m.clock + 1
		p.m.at(p.m.clock + confirmAfter)
	}
}

// confirmAfter is how long what has come may stay unconfirmed while nothing goes back.
const confirmAfter = 10 * time.Millisecond

// window is the peer's.
func (p *pair) window() int { return int(min(p.limits.window, 1<<30)) }

// take hands up a frame, or does what it says.
func (p *pair) take(h header, b []byte) {
	switch h.kind {
	case kindOpen:
		p.number = le.Uint64(b)
		p.up = p.m.env.Upcall.Accept(p.peer)
		p.placer, _ = framework.As[btl.Placer](p.up)
	case kindFrame:
		if p.up != nil {
			p.took(p.up.Frame(b))
		}
	case kindLeave:
		p.up, p.placer = nil, nil
	case kindRefuse:
		if p.endpoint != nil && le.Uint64(b) == p.opened {
			p.refused = fmt.Errorf("the peer has ended the path: %.*q", reasonSize, b[8:])
			p.touch()
		}
	case kindBye:
		p.closes()
		p.fail("receive", framework.ErrPeerClosed)
	}
}

// took ends the path from the peer if the protocol makes no sense of a frame.
func (p *pair) took(err error) {
	if err == nil || p.over {
		return
	}
	p.up, p.placer = nil, nil
	why := err.Error()
	p.control(kindRefuse, append(le.AppendUint64(nil, p.number), why[:min(len(why), reasonSize)]...))
	p.m.env.Ended("btl tcp", p.peer, "receive", err)
}

// control sends something besides frames. The window has room for it always; a peer that has
// more and more of it sent, and confirms nothing, is lost with the next Poll.
func (p *pair) control(k kind, body []byte) {
	b := make([]byte, headerSize, headerSize+len(body))
	h := header{size: len(body), kind: k}
	h.put(b)
	p.path.push(frame{head: append(b, body...)})
	if p.path.crowded() {
		p.broken = fmt.Errorf("too many unconfirmed messages about paths that were opened and closed")
	}
	p.touch()
}

// settle does what waits for the end of what has been read: writes, tells owners that
// their payload is free, ends links.
func (p *pair) settle() {
	for _, l := range p.links[:len(p.path.links)] {
		if l != nil && l.failed != nil && !l.pending() {
			p.lose(l)
		}
	}
	if p.broken != nil && !p.over {
		p.fail("send", p.broken)
	}
	p.release()
	p.limit()
	if refused := p.refused; refused != nil {
		p.refused = nil
		if p.endpoint != nil {
			p.endpoint.Close()
			p.m.env.Ended("btl tcp", p.peer, "send", refused)
		}
	}
	if p.over {
		return
	}
	p.write()
	if p.path.owes(p.window()) && !p.path.say(false) {
		p.owedSince = 1 // when a link is free
	} else {
		if p.path.owed == 0 {
			p.owedSince = 0
		}
		p.write()
	}
	if p.stripes() {
		p.m.at(p.m.clock) // more links are of use
	}
}

// release frees what is confirmed.
func (p *pair) release() {
	freed := false
	for {
		f, ok := p.path.release()
		if !ok {
			break
		}
		freed = true
		if f.done != nil {
			f.done.LocallyComplete()
		}
	}
	if freed {
		p.out.free(p.path.first)
		p.path.trim()
	}
}

// write writes what the sockets take. It calls nobody.
func (p *pair) write() {
	for {
		i := p.path.assign()
		if i < 0 {
			return
		}
		l, c := p.links[i], &p.path.links[i]
		pieces := p.path.pieces(i, p.m.pieces[:0])
		var n, size int
		var err error
		for _, b := range pieces {
			size += len(b)
		}
		n, err = p.m.output(l.fd, pieces...)
		clear(pieces)
		p.m.pieces = pieces[:0]
		switch {
		case n > 0:
			p.path.wrote(i, n)
			c.blocked = n < size
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			c.blocked = true
		default:
			c.blocked = true
			l.breaks(err)
		}
	}
}

// lose ends a link that has broken.
func (p *pair) lose(l *link) {
	err, now := l.failed, p.m.now()
	l.end()
	p.stall.lost(l)
	p.revival.down(now, l.alive(now), fmt.Sprintf("%v: %v", l, err), p.path.ups() == 0)
	p.hasty = true
	if errors.Is(err, errDamaged) && p.path.damages == 1 {
		p.m.env.Logger.Warn("btl tcp: a connection carried damaged data and is made again; further ones are only counted", "peer", p.proc.String(), "link", l.String(), "error", err)
	}
	p.m.at(now)
	p.tell(fmt.Sprintf("lost: %v: %v", l, err))
	p.recheck()
	if p.path.damages > mostDamages {
		p.fail("receive", err)
	} else if err := p.stalled(now); err != nil {
		p.fail("send", err)
	}
}

// mostDamages is how many links of a pair may have carried damaged data. If it
// happens again and again, it isn't the network.
const mostDamages = 8

// fail ends the pair and tells the protocol, once.
func (p *pair) fail(op string, err error) {
	told, never := p.endpoint != nil || p.up != nil, p.endpoint != nil && !p.endpoint.used && p.up == nil
	if errors.Is(err, framework.ErrPeerClosed) { // nothing of what it has sent is lost
		told, never = p.endpoint != nil, false
	}
	p.drop()
	if never {
		op, err = "connect", fmt.Errorf("%w: %w", btl.ErrNeverOpened, err)
	}
	if told {
		p.m.env.Ended("btl tcp", p.peer, op, err)
	}
}

// drop ends the pair.
func (p *pair) drop() {
	if p.over {
		return
	}
	p.over = true
	for _, l := range p.links[:len(p.path.links)] {
		if l != nil {
			l.end()
		}
	}
	p.revival.stop()
	if p.m.pairs[p.peer] == p {
		delete(p.m.pairs, p.peer)
	}
	e := p.endpoint
	if p.up, p.placer, p.endpoint, p.stash = nil, nil, nil, nil; e != nil {
		e.p = nil
	}
	p.path.told = p.path.end
	for n := p.path.first; n < p.path.end; n++ {
		if done := p.path.at(n).done; done != nil {
			done.LocallyComplete()
		}
	}
	p.path.ring, p.path.first = nil, p.path.end
	p.out.drop()
}
