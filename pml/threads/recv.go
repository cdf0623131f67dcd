package threads

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// Recv implements pml.Comm. The usual case, a message that arrives soon from a known
// source, is in recvDirect.
func (c *comm) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	r := c.rank
	if src >= 0 && c.shared.ranks[src] == nil {
		return c.below.receive(ctx, buf, src, tag, plane)
	}
	r.engine.Lock()
	if src >= 0 && buf.Layout() == nil && !c.isBarred[plane] {
		if came, n, ok := c.recvDirect(buf.Bytes, src, tag, plane); ok {
			r.engine.Unlock()
			if n > len(buf.Bytes) {
				err := base.Truncated(int64(n), int64(len(buf.Bytes)))
				return pml.Status{Source: src, Tag: came, Bytes: n, Err: err}, err
			}
			return pml.Status{Source: src, Tag: came, Bytes: n}, nil
		}
	}
	st, err := c.postReceive(buf, src, tag, plane).Conclude(ctx)
	r.engine.Release()
	return st, err
}

// pollsPerCheck is the number of polls after which a receiver checks whether a goroutine waits
// for the lock.
const pollsPerCheck = 32

// recvDirect is a blocking receive from one rank while its caller holds the lock and polls the
// ring. If the next cell has the message that it waits for, the payload is copied from there.
// Nothing is posted, because no other goroutine of the rank can post or poll meanwhile, and
// senders leave the draining to the caller. It returns false if the message does not come soon, if another
// cell comes first, or if a goroutine waits for the lock. Lock held, all the time.
func (c *comm) recvDirect(buf []byte, src, tag int, plane pml.Plane) (came, bytes int, ok bool) {
	r := c.rank
	if r.pendingCount > 0 || r.isSpilling.Load() != 0 || c.isHooked() || !c.queues[plane].IsIdle(&c.peers.get(src).match[plane]) {
		return 0, 0, false
	}
	if r.mustNotify.Load() != 0 { // left from operations that are complete
		r.mustNotify.Store(0)
	}
	budget := r.engine.PollBudget()
	for polls := 1; polls <= budget; polls++ {
		in := r.peek()
		if in == nil {
			if polls%pollsPerCheck == 0 && r.engine.Wanted() {
				break
			}
			cpu.Pause()
			continue
		}
		h := in.header()
		if h.kind() > kindEager || h.plane() != int(plane) || in.teamCommID != c.shared.teamCommID || int(in.source) != src || int(in.tag) != tag && tag != pml.AnyTag {
			break
		}
		came = int(in.tag)
		if h.kind() == kindInline {
			bytes = h.length()
			copy(buf, in.payload[:bytes])
		} else {
			m := r.pointer()
			bytes = len(m.payload)
			copy(buf, m.payload)
			m.free()
		}
		r.advance()
		r.stats.Received++
		r.stats.RecvBytes += uint64(bytes)
		return came, bytes, true
	}
	return 0, 0, false
}

// Irecv implements pml.Comm.
func (c *comm) Irecv(buf pml.Buffer, src, tag int, plane pml.Plane) (*pml.Request, error) {
	r := c.rank
	r.engine.Lock()
	defer r.engine.Release()
	return &c.postReceive(buf, src, tag, plane).Request, nil
}

// StartRecv implements pml.Comm.
func (c *comm) StartRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *pml.Request {
	x := c.postReceive(buf, src, tag, plane)
	x.Resume()
	c.rank.announceNotify()
	return &x.Request
}

// postReceive starts a receive, and matches it with the messages that are here. Lock held.
func (c *comm) postReceive(buf pml.Buffer, src, tag int, plane pml.Plane) *receive {
	r := c.rank
	x := r.newReceive(c, plane, buf)
	if c.isHooked() {
		x.postedAt = time.Now()
		c.event(pml.EventRecv, tag, buf.Len(), plane)
	}
	if c.isBarred[plane] {
		x.fail(c.barredError())
		return x
	}
	x.matchEntry.Source, x.matchEntry.Tag = src, tag
	var mp *match.Peer[receive, message]
	if src != pml.AnySource {
		mp = &c.peers.get(src).match[plane]
	}
	for {
		found := c.queues[plane].Post(mp, &x.matchEntry)
		if found == nil {
			break
		}
		m := found.Owner
		c.unqueued(m)
		if m.offer == nil || m.offer.take(offerMatched) {
			x.take(m)
			break
		}
	}
	if err := c.Aborted[plane]; err != nil {
		r.drainAll() // the message may be here
		if c.queues[plane].Cancel(&x.matchEntry) {
			x.fail(err)
		}
	} else if b := c.below; b != nil && b.changeCount > 0 && b.isRemote(src) && !x.Done() {
		b.planes[plane].scheduleCheck(src)
		if src == pml.AnySource {
			x.SetSuspended(c.Suspended[plane])
		}
	}
	return x
}

// Find implements base.Prober. It makes progress once if there is no message.
func (c *comm) Find(_ context.Context, src, tag int, plane pml.Plane, claim bool) (base.Found, error) {
	m := c.find(src, tag, plane)
	if m == nil {
		c.rank.engine.Progress()
		m = c.find(src, tag, plane)
	}
	if m == nil {
		if c.isBarred[plane] {
			return base.Found{}, c.barredError()
		}
		err := c.SourceError(src, plane)
		if b := c.below; b != nil && err == nil && b.isRemote(src) {
			err = b.sourceError(src, plane)
			m = c.find(src, tag, plane) // it may have come meanwhile
		}
		if m == nil {
			if err == nil && src == pml.AnySource {
				err = c.Suspended[plane]
			}
			return base.Found{}, err
		}
	}
	f := base.Found{Status: m.status(), OK: true}
	if claim {
		if m.offer != nil && !m.offer.take(offerClaimed) {
			return c.Find(nil, src, tag, plane, claim)
		}
		c.unqueue(m)
		c.startOperation()
		f.Message = m
	}
	return f, nil
}

// Pause implements base.Prober. It waits until an unexpected message arrives.
func (c *comm) Pause(ctx context.Context, _ int) error {
	r := c.rank
	arrival := new(progress.Completion)
	c.blockedProbes = append(c.blockedProbes, arrival)
	err := r.engine.Wait(ctx, arrival, nil)
	c.blockedProbes = slices.DeleteFunc(c.blockedProbes, func(p *progress.Completion) bool { return p == arrival })
	return err
}

// Drop implements base.Message.
func (m *message) Drop() {
	c := m.c
	m.unmatched = nil
	c.rank.discard(m)
	c.finishOperation()
}

// Receive implements base.Message.
func (m *message) Receive(buf pml.Buffer) *pml.Request {
	c := m.c
	m.unmatched = nil
	x := c.rank.newReceive(c, m.plane, buf)
	c.Pending-- // the receive counts now
	c.rank.pendingCount--
	if m.offer != nil && !m.offer.take(offerMatched) {
		x.fail(framework.ErrClosed) // the team has ended
		return &x.Request
	}
	x.take(m)
	c.rank.announceNotify()
	return &x.Request
}
