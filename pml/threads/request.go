package threads

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// receive is a receive in progress. The rank's lock guards it, except that goroutines without
// the lock read buf while they copy chunks.
type receive struct {
	pml.Request
	matchEntry match.Recv[receive]
	rank       *Rank
	c          *comm
	plane      pml.Plane
	buf        pml.Buffer
	nextFree   *receive

	// Of another process; its transfer has not started.
	matchedBelow *message
	postedAt     time.Time // With hooks.
}

// newReceive makes a pending receive. Lock held.
func (r *Rank) newReceive(c *comm, plane pml.Plane, buf pml.Buffer) *receive {
	x := r.freeReceives
	if x == nil {
		x = &receive{rank: r}
		x.matchEntry.Owner = x
		x.Init(r.engine, x)
	} else {
		r.freeReceives, x.nextFree = x.nextFree, nil
	}
	x.Start()
	x.c, x.plane, x.buf = c, plane, buf
	c.startOperation()
	return x
}

// deliver completes a receive with a payload. Lock held.
func (x *receive) deliver(source, tag int, payload []byte) {
	n := int64(len(payload))
	room := x.matched(source, tag, n)
	if l := x.buf.Layout(); l != nil {
		l.Unpack(x.buf.Bytes, payload[:min(n, room)], 0)
	} else {
		copy(x.buf.Bytes, payload)
	}
	x.finish()
}

// matched sets the status, and returns the length of the buffer.
func (x *receive) matched(source, tag int, length int64) (room int64) {
	x.Status.Source, x.Status.Tag, x.Status.Bytes = source, tag, int(length)
	if room = x.buf.Len(); length > room {
		x.Status.Err = base.Truncated(length, room)
	}
	r := x.rank
	if x.c.isHooked() {
		x.hookMatch(source, tag, length)
	}
	r.stats.Received++
	r.stats.RecvBytes += uint64(length)
	return room
}

// take completes a receive with a message that is in no queue, or begins its transfer. An offer
// has matched. Lock held.
func (x *receive) take(m *message) {
	switch {
	case m.claimed != nil:
		x.takeBelow(m)
		return
	case m.offer != nil:
		x.accept(m.offer)
		return
	}
	x.deliver(m.matchEntry.Source, m.matchEntry.Tag, m.payload)
	m.free()
}

// accept begins the transfer of an offer that has matched. Lock held.
func (x *receive) accept(o *offer) {
	x.Resume()
	length := o.buf.Len()
	limit := min(length, x.matched(int(o.source), int(o.tag), length))
	r := x.rank
	if limit <= chunkSize {
		copyRange(x.buf, o.buf, 0, limit)
		r.dispose(&o.msg, kindSent)
		x.finish()
		return
	}
	o.open(r, x, limit)
	r.activeTransfers[o] = struct{}{}
	if o.senderRank.pollWord.Polled() && o.senderRank != r {
		o.senderRank.notify(kindAssist, &o.msg)
	}
	r.engine.Defer((*fromFront)(o))
}

// finish completes a receive. Lock held.
func (x *receive) finish() {
	c := x.c
	x.buf = pml.Buffer{}
	x.Finish()
	c.finishOperation()
}

// fail completes a receive with an error. Lock held.
func (x *receive) fail(err error) {
	x.Status.Err = err
	x.finish()
}

// Cancel implements pml.Owner.
func (x *receive) Cancel() {
	if x.c.queues[x.plane].Cancel(&x.matchEntry) {
		x.Status = x.c.WithdrawnStatus(x.plane)
		x.finish()
	}
}

// Release implements pml.Owner.
func (x *receive) Release() {
	r := x.rank
	x.c = nil
	x.nextFree, r.freeReceives = r.freeReceives, x
}

// First implements pml.Owner.
func (x *receive) First() progress.Source { return nil }

// send is a send with an offer, or one that completed at its start. The rank's lock
// guards it.
type send struct {
	pml.Request
	rank  *Rank
	c     *comm
	plane pml.Plane
	dst   int
	tag   int
	bytes int64
	offer *offer

	isSynchronous bool
	// The receiver was asked to return the offer.
	isReturning bool
	next        *send // free list, or Rank.offeredSends
	prev        *send
}

func (r *Rank) freeSend() *send {
	s := r.freeSends
	if s == nil {
		s = &send{rank: r}
		s.Init(r.engine, s)
	} else {
		r.freeSends, s.next = s.next, nil
	}
	return s
}

// completeSend returns the request of a send that is complete. Lock held.
func (r *Rank) completeSend() *send {
	s := r.freeSend()
	s.StartDone()
	return s
}

// droppedError returns the error of a synchronous send with a message that the receiver has dropped.
func (s *send) droppedError() error {
	return &framework.TransportError{Component: name, Peer: fmt.Sprintf("rank %d", s.dst), Op: "exchange", Err: framework.ErrCommClosed}
}

// sent completes a send. Lock held.
func (s *send) sent() {
	c := s.c
	s.offer = nil
	s.rank.offeredSends.remove(s)
	s.Finish()
	c.finishOperation()
}

// Cancel implements pml.Owner.
func (s *send) Cancel() {
	o := s.offer
	if o == nil {
		return
	}
	to := s.c.shared.ranks[s.dst]
	if !o.withdraw() {
		if o.state.Load() == offerHandedOver && !s.isReturning {
			s.isReturning = true
			o.userCount.Add(1)
			to.notify(kindReturn, &o.msg)
			s.rank.engine.Defer((*delivery)(to)) // the receiver may never poll again
		}
		return
	}
	s.Status = s.c.WithdrawnStatus(s.plane)
	s.sent()
	if h := makeHeader(kindWithdrawn, 0, 0); !to.put(h, 0, 0, 0, nil, &o.msg) {
		to.spillFor(h, 0, 0, 0, nil, &o.msg)
	}
}

// endClaimed ends a send with a claimed message that is never received.
// The offer is not reused, since the claimed message still refers to it.
func (s *send) endClaimed() {
	if s.offer.state.CompareAndSwap(offerClaimed, offerWithdrawn) {
		s.Status = s.c.WithdrawnStatus(s.plane)
		s.sent()
	}
}

// returnPatience is the time for which a send whose context has ended waits until the receiver
// has returned its offer. There is no answer if the offer has matched.
const returnPatience = time.Second

// Abandon implements pml.Abandoner. A claimed message may be received much later.
func (s *send) Abandon() bool {
	if s.isReturning && !s.Done() {
		patience, stop := context.WithTimeout(context.Background(), returnPatience)
		defer stop()
		_ = s.rank.engine.Wait(patience, &s.Completion, nil)
	}
	if s.Done() || s.offer == nil {
		return false
	}
	state := s.offer.state.Load()
	return state == offerClaimed || state == offerHandedOver
}

// Release implements pml.Owner.
func (s *send) Release() {
	r := s.rank
	s.c = nil
	s.next, r.freeSends = r.freeSends, s
}

// First implements pml.Owner.
func (s *send) First() progress.Source { return nil }

// sendList is a list of sends in the order of their calls.
type sendList struct {
	head, tail *send
	// Next send of each.
	next *send
}

func (l *sendList) push(s *send) {
	s.next, s.prev = nil, l.tail
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
}

func (l *sendList) remove(s *send) {
	if s.prev == nil {
		l.head = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		l.tail = s.prev
	} else {
		s.next.prev = s.prev
	}
	if l.next == s {
		l.next = s.next
	}
	s.next, s.prev = nil, nil
}

// each calls f, which may remove any sends and push others. Calls are not nested.
func (l *sendList) each(f func(*send)) {
	for s := l.head; s != nil; s = l.next {
		l.next = s.next
		f(s)
	}
}
