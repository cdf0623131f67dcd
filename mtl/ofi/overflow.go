package ofi

import (
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// A provider takes a limited number of receives. Those beyond it wait here, a line for each
// communicator id, because only receives of one id have an order among them. What has come for
// an id and lies in the provider has matched no receive that the provider has. So a look claims
// the first of it, whatever it is, and package match says which of the line's receives it is
// for; what is for none of them stays here, claimed, for a receive or a probe that comes later
// (docs/decisions/receives-that-wait.md).
//
// Thus receives that nobody serves yet, or ever, don't keep those behind them, nor
// those of another communicator or plane, from their messages, and whatever waits, a message, a
// receive and a probe each take constant time.

// reserved is how many receives a provider is given less than it takes, so that
// it takes those of claimed messages at any time.
const reserved = 16

// turnsMost is how many lines one Poll sees to.
const turnsMost = 4

// overflow posts what has room now, and looks for the messages of the rest.
func (m *module) overflow() {
	for m.urgent.head != nil {
		s := m.urgent.head
		switch {
		case s.kind != claimed:
		case m.leftThere(s):
			m.urgent.pop()
			continue
		case m.mustHold(s.to, int(s.length)):
			m.urgent.pop()
			m.held.push(s)
			continue
		}
		code := m.start(s)
		if code == libfabric.Again {
			break // looks need no room for receives
		}
		m.urgent.pop()
		m.refused(s, code)
	}
	held := m.held
	m.held = fifo{}
	for s := held.head; s != nil; s = held.head {
		if held.pop(); !m.leftThere(s) {
			m.refused(s, m.startClaimed(s))
		}
	}
	for range min(turnsMost, len(m.turns)) {
		if m.turn++; m.turn >= len(m.turns) {
			m.turn = 0
		}
		if len(m.turns) > 0 {
			m.advance(m.turns[m.turn])
		}
	}
}

// startUrgent starts a receive that no other may overtake or keep waiting: it goes
// first when there is room again.
func (m *module) startUrgent(s *slot) libfabric.Errno {
	code := m.start(s)
	if code == libfabric.Again {
		m.urgent.push(s)
		return 0
	}
	return code
}

// startClaimed is startUrgent for a claimed message, which may have to be held.
func (m *module) startClaimed(s *slot) libfabric.Errno {
	if m.mustHold(s.to, int(s.length)) {
		m.held.push(s)
		return 0
	}
	return m.startUrgent(s)
}

// mustHold reports whether a message of some length from a peer, NoEndpoint for any, is not to be asked for
// now. A peer that takes nothing may be one that has died and is being connected again, which no
// launcher has told of yet; a library that is asked for the rest of a message then may crash (known.go, Hold).
func (m *module) mustHold(from mtl.Endpoint, length int) bool {
	if !m.holds || int64(length) <= m.caps.Eager {
		return false
	}
	if from != mtl.NoEndpoint {
		return m.peers[from].deaf
	}
	return m.deaf > 0
}

// refused ends a receive that the provider does not take at all.
func (m *module) refused(s *slot, code libfabric.Errno) {
	if code == 0 {
		return
	}
	err := m.callError("receive", s.to, code)
	if s.kind == listen {
		m.fail(err)
		return
	}
	m.giveUp(s, mtl.Result{Err: err})
}

// advance posts the receives of a line for which there is room, and looks for the messages of the
// others. While a look is under way none is posted: what it claims may be for the oldest.
func (m *module) advance(l *line) {
	if l.looking {
		return
	}
	for s := l.oldest(); s != nil; s = l.oldest() {
		code := m.start(s)
		if code == libfabric.Again {
			break
		}
		l.leave(s)
		m.refused(s, code)
	}
	if l.oldest() != nil {
		m.lookIn(l)
	}
	m.settle(l)
}

// join has a receive or a probe get what was claimed before, or wait in line if others do.
// Otherwise the provider is asked for it.
func (m *module) join(l *line, s *slot) (joined bool) {
	if c := l.find(s); c != nil {
		m.serve(l, s, c)
		m.settle(l)
		return true
	}
	if !l.looking && l.oldest() == nil {
		return false
	}
	if s.kind == receive {
		m.wait(l, s)
		return true
	}
	s.asked = l.looks
	l.probes.push(s)
	if !l.looking {
		m.lookIn(l)
	}
	m.settle(l)
	return true
}

// wait puts a receive at the end of a line.
func (m *module) wait(l *line, s *slot) {
	l.push(s)
	m.settle(l)
}

// lookIn begins to claim what comes next in a line. If that can't be now, another Poll tries again for the
// receives, and a probe has found nothing, as elsewhere (inquire).
func (m *module) lookIn(l *line) {
	l.looks++
	switch code := m.startLook(l); code {
	case 0:
		l.looking = true
		return
	case libfabric.Again, libfabric.NoMessage:
	default:
		m.failed(l, m.callError("probe", mtl.NoEndpoint, code))
		return
	}
	m.answer(l, mtl.Result{})
}

// failed tells of a look that failed: the probes that waited for it, and one receive, so that a provider
// that goes on like that keeps none of them waiting for ever.
func (m *module) failed(l *line, err error) {
	m.answer(l, mtl.Result{Err: err})
	if r := l.oldest(); r != nil {
		l.leave(r)
		m.giveUp(r, mtl.Result{Err: err})
	}
}

func (m *module) startLook(l *line) libfabric.Errno {
	if m.posted >= m.room.all || m.away != nil || m.drainsProbes {
		return libfabric.Again
	}
	s, err := m.take(looking, nil, nil)
	if err != nil {
		return libfabric.NoMemory
	}
	s.to, s.address = mtl.NoEndpoint, libfabric.AnyAddress
	s.tag, s.more = m.layout.receive(mtl.Envelope{CID: l.cid, Source: mtl.AnySource, Tag: mtl.AnyTag})
	code := m.ep.Peek(s.number, s.address, s.tag, s.more, libfabric.Claim)
	if code != 0 {
		m.release(s)
		return code
	}
	s.posted = true
	m.posted++
	m.probesAtProvider++
	return 0
}

// looked takes the outcome of a look.
func (m *module) looked(s *slot, ev *libfabric.Event) {
	l := m.lines[m.layout.cidOf(s.tag)]
	var r mtl.Result
	if ev.Err == 0 {
		r = m.claim(s, ev) // which may post and cancel receives
	} else {
		m.release(s)
	}
	l.looking = false
	switch ev.Err {
	case 0:
		m.place(l, s, r)
	case libfabric.NoMessage:
		m.answer(l, mtl.Result{})
	default:
		m.failed(l, m.eventError("receive", mtl.NoEndpoint, ev))
	}
	if l.probes.head != nil && !l.looking {
		m.lookIn(l)
	}
	m.settle(l)
}

// place gives a message that a look has claimed to the first receive of the line that matches
// it, or keeps it: for the first probe that claims it, among others.
func (m *module) place(l *line, s *slot, r mtl.Result) {
	if w := l.arrive(r); w != nil {
		m.give(w, s)
		return
	}
	l.keep(s, r)
	var left fifo // few: a goroutine asks for one thing at a time
	for p := l.probes.head; p != nil; p = l.probes.head {
		l.probes.pop()
		if c := l.find(p); c != nil {
			m.serve(l, p, c)
		} else if p.kind == probe && l.looks-p.asked >= looksMost {
			m.giveUp(p, mtl.Result{})
		} else {
			left.push(p)
		}
	}
	l.probes = left
}

// looksMost is after how many messages that are others' a probe has found nothing, though there may
// be more: who only asks does not wait until the last one has come. Who claims may not ask again.
const looksMost = 4096

// answer tells the probes of a line that waited for a look what it has found for them: nothing.
func (m *module) answer(l *line, r mtl.Result) {
	for p := l.probes.head; p != nil && p.asked < l.looks; p = l.probes.head {
		l.probes.pop()
		m.giveUp(p, r)
	}
}

// serve has a receive or a probe get a message that is kept. The next Poll tells of a probe.
func (m *module) serve(l *line, s, c *slot) {
	found := mtl.Result{Found: true, Source: int32(c.node.Source), Tag: int32(c.node.Tag), Bytes: c.length}
	switch s.kind {
	case receive:
		l.take(c)
		m.give(s, c)
	case claiming:
		l.take(c)
		if s.to != mtl.NoEndpoint {
			c.to = s.to
		}
		s.op.Slot = c.number
		m.giveUp(s, found)
	default:
		m.giveUp(s, found)
	}
}

// give has a receive go on in the slot of the message that was claimed for it.
func (m *module) give(s, c *slot) {
	if s.to != mtl.NoEndpoint {
		c.to = s.to
	}
	op := s.op
	err := m.fetch(c, op, s.where())
	m.release(s)
	if err != nil {
		m.end(op, mtl.Result{Err: err})
	}
}
