package ofi

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// line is what waits of one id: its receives, in the order of posting; messages that were claimed
// and that nobody has asked for, in the order in which they came; and probes, until what has come
// is claimed.
type line struct {
	cid     uint32
	queues  match.Queues[slot, slot]
	sources map[int]*match.Peer[slot, slot] // by rank
	order   match.Order[slot]               // the receives
	kept    int                             // messages
	probes  fifo                            // a look is under way, or begins before anything else happens
	looks   uint64                          // that have begun
	looking bool                            // one is under way
	listed  bool                            // it is in module.turns,
	at      int                             // there
}

// lineOf returns the line of an id, which it makes if there is none.
func (m *module) lineOf(cid uint32) *line {
	l := m.lines[cid]
	if l != nil {
		return l
	}
	if l = m.spare; l == nil {
		l = &line{sources: map[int]*match.Peer[slot, slot]{}}
	}
	if m.lines == nil {
		m.lines = map[uint32]*line{}
	}
	l.cid, m.lines[cid], m.spare = cid, l, nil
	return l
}

// spareSources is of how many sources a line may be that is kept when nothing is left in it.
const spareSources = 64

// settle gives a line its turns as long as receives wait there, and forgets it when nothing is left. Called
// after whatever changes that.
func (m *module) settle(l *line) {
	switch waits := l.oldest() != nil; {
	case waits && !l.listed:
		l.listed, l.at = true, len(m.turns)
		m.turns = append(m.turns, l)
	case !waits && l.listed:
		last := m.turns[len(m.turns)-1]
		m.turns[l.at], last.at = last, l.at
		m.turns = m.turns[:len(m.turns)-1]
		l.listed = false
	}
	if !l.listed && !l.looking && l.kept == 0 && l.probes.head == nil {
		if delete(m.lines, l.cid); len(l.sources) <= spareSources {
			m.spare = l
		}
	}
}

// oldest returns the receive that was posted first, or nil.
func (l *line) oldest() *slot {
	if e := l.order.First(); e != nil {
		return e.Owner
	}
	return nil
}

// source returns the queues of a rank, made at its first use; nil for any.
func (l *line) source(rank int) *match.Peer[slot, slot] {
	if rank == mtl.AnySource {
		return nil
	}
	p := l.sources[rank]
	if p == nil {
		p = new(match.Peer[slot, slot])
		l.sources[rank] = p
	}
	return p
}

// find returns the message that a receive or a probe would get of those that are kept, or nil.
func (l *line) find(s *slot) *slot {
	if l.kept == 0 {
		return nil
	}
	if e := l.queues.Find(l.source(s.node.Source), s.node.Source, s.node.Tag); e != nil {
		return e.Owner
	}
	return nil
}

// push has a receive wait that matches nothing of what is kept.
func (l *line) push(s *slot) {
	l.queues.Post(l.source(s.node.Source), &s.node)
	l.order.Push(&s.node)
}

// leave takes a receive out.
func (l *line) leave(s *slot) {
	l.queues.Cancel(&s.node)
	l.order.Remove(&s.node)
}

// arrive takes out the receive that gets a message, or returns nil.
func (l *line) arrive(r mtl.Result) *slot {
	e := l.queues.Arrive(l.source(int(r.Source)), int(r.Tag))
	if e == nil {
		return nil
	}
	l.order.Remove(e)
	return e.Owner
}

// keep has a message wait that no receive gets.
func (l *line) keep(c *slot, r mtl.Result) {
	c.node.Source, c.node.Tag = int(r.Source), int(r.Tag)
	l.queues.Keep(l.source(c.node.Source), &c.node)
	l.kept++
}

// take takes a message out.
func (l *line) take(c *slot) {
	l.queues.Take(&c.node)
	l.kept--
}
