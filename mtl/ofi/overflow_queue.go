package ofi

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// overflowQueue holds the receives of one communicator id for which the provider has no space, the
// messages of the id that were claimed and match none of them, and the probes that wait for a peek.
type overflowQueue struct {
	cid     uint32
	queues  match.Queues[slot, slot]
	sources map[int]*match.Peer[slot, slot] // by rank
	// receives orders the receives by the time of posting.
	receives     match.Order[slot]
	messageCount int
	// probes is empty unless a peek is in progress, or is started before the lock is released.
	probes fifo
	// peekCount is the number of peeks started, including those that the provider refused.
	peekCount uint64
	isPeeking bool
	// readyIndex is the index in receiveOverflow.ready, or -1.
	readyIndex int
}

// queueFor returns the overflow queue of a communicator id, and creates it if necessary.
func (m *module) queueFor(cid uint32) *overflowQueue {
	q := m.overflow.queues[cid]
	if q != nil {
		return q
	}
	if q = m.overflow.spare; q == nil {
		q = &overflowQueue{sources: map[int]*match.Peer[slot, slot]{}, readyIndex: -1}
	}
	if m.overflow.queues == nil {
		m.overflow.queues = map[uint32]*overflowQueue{}
	}
	q.cid, m.overflow.queues[cid], m.overflow.spare = cid, q, nil
	return q
}

// maxSpareSources is the largest number of sources of an empty queue that is kept for reuse.
const maxSpareSources = 64

// updateReady adds a queue with receives to the ready queues, removes one without, and deletes an
// empty one. It must be called after each change of a queue.
func (m *module) updateReady(q *overflowQueue) {
	o := &m.overflow
	switch hasReceives := q.oldestReceive() != nil; {
	case hasReceives && q.readyIndex < 0:
		q.readyIndex = len(o.ready)
		o.ready = append(o.ready, q)
	case !hasReceives && q.readyIndex >= 0:
		last := o.ready[len(o.ready)-1]
		o.ready[q.readyIndex], last.readyIndex = last, q.readyIndex
		o.ready = o.ready[:len(o.ready)-1]
		q.readyIndex = -1
	}
	if q.readyIndex < 0 && !q.isPeeking && q.messageCount == 0 && q.probes.head == nil {
		if delete(o.queues, q.cid); len(q.sources) <= maxSpareSources {
			o.spare = q
		}
	}
}

// oldestReceive returns the receive that was posted first, or nil.
func (q *overflowQueue) oldestReceive() *slot {
	if e := q.receives.First(); e != nil {
		return e.Owner
	}
	return nil
}

// queueOfSource returns the match queues of a rank, or nil for AnySource.
func (q *overflowQueue) queueOfSource(rank int) *match.Peer[slot, slot] {
	if rank == mtl.AnySource {
		return nil
	}
	p := q.sources[rank]
	if p == nil {
		p = new(match.Peer[slot, slot])
		q.sources[rank] = p
	}
	return p
}

// findMessage returns the message that a receive or a probe matches, or nil.
func (q *overflowQueue) findMessage(s *slot) *slot {
	if q.messageCount == 0 {
		return nil
	}
	if e := q.queues.Find(q.queueOfSource(s.node.Source), s.node.Source, s.node.Tag); e != nil {
		return e.Owner
	}
	return nil
}

// addReceive appends a receive, which must match none of the messages.
func (q *overflowQueue) addReceive(s *slot) {
	q.queues.Post(q.queueOfSource(s.node.Source), &s.node)
	q.receives.Push(&s.node)
}

func (q *overflowQueue) removeReceive(s *slot) {
	q.queues.Cancel(&s.node)
	q.receives.Remove(&s.node)
}

// matchMessage removes and returns the receive that matches a message, or returns nil.
func (q *overflowQueue) matchMessage(r mtl.Result) *slot {
	e := q.queues.Arrive(q.queueOfSource(int(r.Source)), int(r.Tag))
	if e == nil {
		return nil
	}
	q.receives.Remove(e)
	return e.Owner
}

// addMessage appends a claimed message, which must match none of the receives.
func (q *overflowQueue) addMessage(c *slot, r mtl.Result) {
	c.node.Source, c.node.Tag = int(r.Source), int(r.Tag)
	q.queues.AddUnexpected(q.queueOfSource(c.node.Source), &c.node)
	q.messageCount++
}

func (q *overflowQueue) removeMessage(c *slot) {
	q.queues.RemoveUnexpected(&c.node)
	q.messageCount--
}
