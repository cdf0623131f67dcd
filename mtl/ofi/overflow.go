package ofi

import (
	"slices"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// A provider takes a limited number of receives. Those beyond it wait here, a line
// for each communicator id, because only receives of one id have an order among
// them. The first of each line is looked for among the messages that have come: what
// lies there has matched no receive that the provider has, and so belongs to it.
// Thus a thousand receives that nobody serves yet don't keep the messages of
// another communicator, or of another plane, from theirs.

// line is the receives of one id that wait, in the order of posting.
type line struct {
	cid uint32
	fifo
	sought bool // a claiming probe for the first one is in progress
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
	l.drop(s)
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
		for l.head != nil && !l.sought {
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

// seek looks for the message of the first in a line.
func (m *module) seek(l *line) {
	s := l.head
	if m.posted >= m.room.all || m.aside && m.waits(s) || m.ep.Peek(s.number, s.address, s.tag, s.more, libfabric.Claim) != 0 {
		return // another Poll tries again
	}
	s.kind, s.posted, l.sought = sought, true, true
	m.posted++
}

// soughtFor takes the answer.
func (m *module) soughtFor(s *slot, ev *libfabric.Event) {
	l := m.lineOf(m.layout.cidOf(s.tag))
	l.sought = false
	s.kind, s.posted = receive, false
	switch ev.Err {
	case 0:
		m.leave(l, s)
		m.claim(s, ev)
		if m.leftThere(s) {
			return
		}
		s.flags = libfabric.Claim
		if s.length > int64(len(s.buf)) {
			s.flags |= m.spill
		}
		m.refused(s, m.startUrgent(s))
	case libfabric.NoMessage:
		if s.canceled {
			m.leave(l, s)
			m.finish(s, mtl.Result{Canceled: true})
		}
	default:
		m.leave(l, s)
		m.finish(s, mtl.Result{Err: m.eventError("receive", s.to, ev)})
	}
}
