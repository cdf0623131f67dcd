package ofi

import (
	"slices"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// A provider takes a limited number of receives. Those beyond it wait here, a line
// for each communicator id, because only receives of one id have an order among
// them. Their messages are looked for among those that have come: what lies there
// has matched no receive that the provider has. What the first of a line finds belongs
// to it, and a probe claims it. What one behind it finds may belong to one before it:
// so it is only looked at, and claimed, by its own source and tag and no others, if no
// earlier one matches it. What comes in between then changes nothing.
// Thus receives that nobody serves yet, or ever, don't keep those behind them, nor
// those of another communicator or plane, from their messages. A probe of an id that has
// a line comes behind it, and is done the same way.

// line is the receives of one id that wait, in the order of posting.
type line struct {
	cid uint32
	fifo
	at     *slot // behind the first, the one whose turn it is; nil: the second
	behind bool  // it is at's turn; every other look is for the first
	sought *slot // whom a probe in progress is for
	looks  bool  // that probe claims nothing
	left   int   // how many have left it
}

// turn returns whom to look for.
func (l *line) turn() *slot {
	if !l.behind || l.head.next == nil {
		return l.head
	}
	if l.at == nil || l.at == l.head {
		l.at = l.head.next
	}
	return l.at
}

// hurry makes x the next to look for: its message is there.
func (l *line) hurry(x *slot) { l.at, l.behind = x, x != l.head }

// vain notes that nothing is there for s.
func (l *line) vain(s *slot) {
	if l.behind = s == l.head; !l.behind {
		l.at = s.next
	}
}

// reserved is how many receives a provider is given less than it takes, so that
// it takes those of claimed messages at any time.
const reserved = 16

// seekMost is how many lines one Poll looks at.
const seekMost = 4

// lineOf returns the line of an id, or nil.
func (m *module) lineOf(cid uint32) *line {
	for _, l := range m.lines {
		if l.cid == cid {
			return l
		}
	}
	return nil
}

// wait puts a receive at the end of its line.
func (m *module) wait(cid uint32, s *slot) {
	l := m.lineOf(cid)
	if l == nil {
		l = &line{cid: cid}
		m.lines = append(m.lines, l)
	}
	l.push(s)
}

// leave takes a receive out of its line.
func (m *module) leave(l *line, s *slot) {
	if l.at == s {
		l.at = s.next
	}
	l.drop(s)
	l.left++
	if l.head == nil {
		m.lines = slices.DeleteFunc(m.lines, func(x *line) bool { return x == l })
	}
}

// overflow posts what has room now, and seeks the messages of the rest.
func (m *module) overflow() {
	for m.urgent.head != nil {
		s := m.urgent.head
		if s.kind == claimed && m.leftThere(s) {
			m.urgent.pop()
			continue
		}
		code := m.start(s)
		if code == libfabric.Again {
			break // those in lines are looked for, which needs no room
		}
		m.urgent.pop()
		m.refused(s, code)
	}
	for range min(seekMost, len(m.lines)) {
		l := m.lines[0]
		m.lines = append(m.lines[1:], l) // the others get their turn
		for l.head != nil && l.sought == nil {
			s := l.head
			code := m.start(s)
			if code == libfabric.Again {
				m.seek(l)
				break
			}
			m.leave(l, s)
			m.refused(s, code)
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

// seek looks for the message of one receive in a line.
func (m *module) seek(l *line) {
	s := l.turn()
	if m.waits(s) {
		l.vain(s)
		return
	}
	flags := libfabric.Claim
	if s != l.head {
		flags = 0
	}
	m.peek(l, s, s.address, s.tag, s.more, flags)
}

// peek begins a probe for a receive in a line. If there is no room for it, another Poll
// tries again.
func (m *module) peek(l *line, s *slot, address, tag, ignore uint64, flags libfabric.Kind) {
	if m.posted >= m.room.all || m.away != nil {
		return
	}
	switch m.ep.Peek(s.number, address, tag, ignore, flags) {
	case 0:
		s.kind, s.posted, l.sought, l.looks = sought, true, s, flags == 0
		m.posted++
	case libfabric.NoMessage:
		l.vain(s)
	}
}

// soughtFor takes the answer.
func (m *module) soughtFor(s *slot, ev *libfabric.Event) {
	l := m.lineOf(m.layout.cidOf(s.tag))
	l.sought = nil
	s.kind, s.posted = receive, false
	switch {
	case ev.Err == 0 && l.looks && !s.canceled:
		m.seen(l, s, ev)
	case ev.Err == 0 && !l.looks:
		m.leave(l, s)
		l.behind = false
		m.claim(s, ev)
		if m.leftThere(s) {
			return
		}
		s.flags = libfabric.Claim
		if s.length > int64(len(s.buf)) {
			s.flags |= m.spill
		}
		m.refused(s, m.startUrgent(s))
	case ev.Err == 0 || ev.Err == libfabric.NoMessage:
		if l.vain(s); s.canceled {
			m.leave(l, s)
			m.finish(s, mtl.Result{Canceled: true})
		}
	default:
		m.leave(l, s)
		m.finish(s, mtl.Result{Err: m.eventError("receive", s.to, ev)})
	}
}

// seen claims a message that s, which is not the first of its line, would receive, unless
// an earlier one matches it: then that one is next.
func (m *module) seen(l *line, s *slot, ev *libfabric.Event) {
	from, address := m.sender(s, ev)
	if x := m.owner(l, from, ev.Tag); x != s {
		l.hurry(x)
		return
	}
	m.peek(l, s, address, ev.Tag, s.more&m.layout.sync, libfabric.Claim)
}

// found ends a probe that has looked, and claimed nothing. What belongs to a receive that
// waits is not there for it, and that receive is next; what else there is a claim takes by its
// own source and tag. What a receive may have taken meanwhile that has left the line is not
// told of.
func (m *module) found(s *slot, ev *libfabric.Event) {
	from, address := m.sender(s, ev)
	if l := s.behind; l != nil {
		x := m.owner(l, from, ev.Tag)
		if x != nil {
			l.hurry(x)
		}
		if x != nil || s.kind == probe && l.left != s.left {
			m.finish(s, mtl.Result{})
			return
		}
	}
	if s.kind == probe {
		r, _ := m.result(ev)
		r.Found = true
		m.finish(s, r)
		return
	}
	s.posted, s.address, s.tag, s.more = false, address, ev.Tag, s.more&m.layout.sync
	s.flags |= libfabric.Claim
	op := s.op
	if err := m.inquire(s); err != nil {
		m.end(op, mtl.Result{Err: err})
	}
}

// sender returns whose message a look for s has found, and the address by which no other's is
// found: NoEndpoint and any address as long as that one is not known, or no longer.
func (m *module) sender(s *slot, ev *libfabric.Event) (from mtl.Endpoint, address uint64) {
	if !m.layout.data || s.to != mtl.NoEndpoint {
		return s.to, s.address
	}
	r, _ := m.result(ev)
	from, ok := m.env.Upcall.Endpoint(m.layout.cidOf(s.tag), int(r.Source))
	if !ok || m.peers[from].stage < inserted {
		return mtl.NoEndpoint, libfabric.AnyAddress
	}
	return from, m.peers[from].address
}

// owner returns the first receive of a line that a message matches, or nil. A message whose
// sender is not known may match any of its tag.
func (m *module) owner(l *line, from mtl.Endpoint, tag uint64) *slot {
	for x := l.head; x != nil; x = x.next {
		if (tag^x.tag)&^x.more == 0 && (!m.layout.data || x.to == mtl.NoEndpoint || from == mtl.NoEndpoint || x.to == from) {
			return x
		}
	}
	return nil
}
