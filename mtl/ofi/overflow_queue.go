package ofi

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// overflowQueue holds the receives of one communicator id for which the provider has no space, the
// messages of the id that were claimed and match none of them, and the probes that wait for a peek.
type overflowQueue struct {
	cid           uint32
	matchQueues   match.Queues[slot, slot]
	sourcesByRank map[int]*match.Peer[slot, slot]
	// receiveOrder orders the receives by the time of posting.
	receiveOrder match.Order[slot]
	messageCount int
	// queuedProbes is empty unless a peek is in progress, or is started before the lock is released.
	queuedProbes fifo
	// peekCount is the number of peeks started, including those that the provider refused.
	peekCount uint64
	isPeeking bool
	// readyIndex is the index in receiveOverflow.readyQueues, or -1.
	readyIndex int
}

// queueFor returns the overflow queue of a communicator id, and creates it if necessary.
func (m *module) queueFor(cid uint32) *overflowQueue {
	q := m.receiveOverflow.queuesByCID[cid]
	if q != nil {
		return q
	}
	if q = m.receiveOverflow.spareQueue; q == nil {
		q = &overflowQueue{sourcesByRank: map[int]*match.Peer[slot, slot]{}, readyIndex: -1}
	}
	if m.receiveOverflow.queuesByCID == nil {
		m.receiveOverflow.queuesByCID = map[uint32]*overflowQueue{}
	}
	q.cid, m.receiveOverflow.queuesByCID[cid], m.receiveOverflow.spareQueue = cid, q, nil
	return q
}

// maxSpareSources is the largest number of sources of an empty queue that is kept for reuse.
const maxSpareSources = 64

// updateReady adds a queue with receives to the ready queues, removes one without, and deletes an
// empty one. It must be called after each change of a queue.
func (m *module) updateReady(q *overflowQueue) {
	o := &m.receiveOverflow
	switch hasReceives := q.oldestReceive() != nil; {
	case hasReceives && q.readyIndex < 0:
		q.readyIndex = len(o.readyQueues)
		o.readyQueues = append(o.readyQueues, q)
	case !hasReceives && q.readyIndex >= 0:
		last := o.readyQueues[len(o.readyQueues)-1]
		o.readyQueues[q.readyIndex], last.readyIndex = last, q.readyIndex
		o.readyQueues = o.readyQueues[:len(o.readyQueues)-1]
		q.readyIndex = -1
	}
	if q.readyIndex < 0 && !q.isPeeking && q.messageCount == 0 && q.queuedProbes.head == nil {
		if delete(o.queuesByCID, q.cid); len(q.sourcesByRank) <= maxSpareSources {
			o.spareQueue = q
		}
	}
}

// oldestReceive returns the receive that was posted first, or nil.
func (q *overflowQueue) oldestReceive() *slot {
	if e := q.receiveOrder.First(); e != nil {
		return e.Owner
	}
	return nil
}

// queueOfSource returns the match queues of a rank, or nil for AnySource.
func (q *overflowQueue) queueOfSource(rank int) *match.Peer[slot, slot] {
	if rank == mtl.AnySource {
		return nil
	}
	p := q.sourcesByRank[rank]
	if p == nil {
		p = new(match.Peer[slot, slot])
		q.sourcesByRank[rank] = p
	}
	return p
}

// findMessage returns the message that a receive or a probe matches, or nil.
func (q *overflowQueue) findMessage(s *slot) *slot {
	if q.messageCount == 0 {
		return nil
	}
	if e := q.matchQueues.Find(q.queueOfSource(s.queueEntry.Source), s.queueEntry.Source, s.queueEntry.Tag); e != nil {
		return e.Owner
	}
	return nil
}

// addReceive appends a receive, which must match none of the messages.
func (q *overflowQueue) addReceive(s *slot) {
	q.matchQueues.Post(q.queueOfSource(s.queueEntry.Source), &s.queueEntry)
	q.receiveOrder.Push(&s.queueEntry)
}

func (q *overflowQueue) removeReceive(s *slot) {
	q.matchQueues.Cancel(&s.queueEntry)
	q.receiveOrder.Remove(&s.queueEntry)
}

// matchMessage removes and returns the receive that matches a message, or returns nil.
func (q *overflowQueue) matchMessage(r mtl.Result) *slot {
	e := q.matchQueues.Arrive(q.queueOfSource(int(r.Source)), int(r.Tag))
	if e == nil {
		return nil
	}
	q.receiveOrder.Remove(e)
	return e.Owner
}

// addMessage appends a claimed message, which must match none of the receives.
func (q *overflowQueue) addMessage(c *slot, r mtl.Result) {
	c.queueEntry.Source, c.queueEntry.Tag = int(r.Source), int(r.Tag)
	q.matchQueues.AddUnexpected(q.queueOfSource(c.queueEntry.Source), &c.queueEntry)
	q.messageCount++
}

func (q *overflowQueue) removeMessage(c *slot) {
	q.matchQueues.RemoveUnexpected(&c.queueEntry)
	q.messageCount--
}
