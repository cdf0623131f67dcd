package cm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// Recv implements pml.Comm.
func (c *comm) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	e := c.m.engine
	e.Lock()
	var r *request
	if src >= 0 {
		var came, n int
		var ok bool
		if came, n, r, ok = c.receiveNow(buf, src, tag, plane); ok {
			e.Unlock()
			return pml.Status{Source: src, Tag: came, Bytes: n}, nil
		}
	}
	return c.recvPosted(ctx, r, buf, src, tag, plane)
}

// recvPosted is Recv where the message has not come yet: r is its request, or nil. It
// releases the lock.
func (c *comm) recvPosted(ctx context.Context, r *request, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	if r == nil {
		r = c.postRecv(buf, src, tag, plane)
	}
	st, err := r.Conclude(ctx)
	c.m.engine.Unlock()
	return st, err
}

// Irecv implements pml.Comm.
func (c *comm) Irecv(buf pml.Buffer, src, tag int, plane pml.Plane) (*pml.Request, error) {
	e := c.m.engine
	e.Lock()
	r := c.postRecv(buf, src, tag, plane)
	e.Unlock()
	return &r.Request, nil
}

// StartRecv implements pml.Comm.
func (c *comm) StartRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *pml.Request {
	return &c.postRecv(buf, src, tag, plane).Request
}

// postRecv makes a request of a receive. Lock held.
func (c *comm) postRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *request {
	m := c.m
	var p *peer
	if src != pml.AnySource {
		if p = c.peers.Get(src); p == nil {
			p = c.peer(src) // Before the request, because a process that is gone ends all requests for it.
		}
	}
	r := m.newRequest(c)
	r.send, r.p, r.plane, r.tag, r.buf = false, p, plane, tag, buf
	if m.env.Hooks != nil {
		m.env.Event(pml.Event{Kind: pml.EventRecv, Comm: c.Spec.ID, Tag: tag, Bytes: buf.Len(), Plane: plane})
	}
	if c.Closed() {
		r.fail(framework.ErrClosed)
		return r
	}
	r.post()
	return r
}

// post gives a receive its message, if that is in the unexpected queue, or to the
// MTL, after the end of a pull. A receive whose message can't come any more probes only whether it is there
// already. Lock held.
func (r *request) post() {
	c, m := r.c, r.m
	if err := c.told(r.source(), r.tag, r.plane); err != nil {
		r.fail(err)
		return
	}
	if m.kept > 0 {
		if found := c.queues[r.plane].Find(c.matchPeer(r.source(), r.plane), r.source(), r.tag); found != nil {
			c.unkeep(found, r.plane).giveTo(r)
			return
		}
	}
	m.postings++
	r.posting = m.postings
	isSwept := m.failures && c.isSwept(r.source(), r.plane)
	if why := c.Aborted[r.plane]; why != nil && (isSwept || r.plane == pml.PointToPoint) {
		r.fail(why) // Earlier messages may be held.
		return
	}
	if isSwept {
		r.sweep()
		return
	}
	if m.pulls > 0 && c.pulling[r.plane].left > 0 {
		r.wait()
		return
	}
	var from mtl.Endpoint
	if r.p != nil {
		p := r.p.proc
		if !p.connected && p.connect() != nil {
			// Without an endpoint there is nothing to ask the MTL for: another
			// one's messages would answer.
			r.fail(c.Explain(p.Err, r.p.rank))
			return
		}
		from = p.to
	}
	r.busy = true
	var err error
	if why := r.c.cannotCome(r.source(), r.plane); why != nil {
		r.state, r.why = seeking, why
		err = m.mtl.Probe(&r.op, from, r.envelope(), true)
	} else {
		r.state = posted
		err = m.mtl.Recv(&r.op, from, r.envelope(), r.target())
	}
	if err != nil {
		r.busy = false
		if r.why != nil {
			r.fail(r.why)
		} else {
			r.doubt(err)
		}
	}
}

func (r *request) source() int {
	if r.p == nil {
		return pml.AnySource
	}
	return r.p.rank
}

// matchPeer returns the queues of a source; nil: any.
func (c *comm) matchPeer(src int, plane pml.Plane) *match.Peer[request, message] {
	if src == pml.AnySource {
		return nil
	}
	return &c.peer(src).match[plane]
}

func (r *request) envelope() mtl.Envelope { return r.c.from(r.p, r.tag, uint32(r.plane)) }

// target is where the MTL puts the message.
func (r *request) target() []byte {
	if l := r.buf.Layout(); l != nil {
		return r.room(max(l.Size(), r.m.least))
	}
	return r.into(r.buf.Bytes)
}

// into is where the MTL puts the message of a receive into b: there, or where there is room for
// a head.
func (r *request) into(b []byte) []byte {
	if int64(len(b)) < r.m.least {
		return r.room(r.m.least)
	}
	return b
}

// receiveClaimed fetches the message that a seeking receive has found.
func (r *request) receiveClaimed() {
	if p, err := r.c.tookOut(&r.op.Result); err == nil {
		r.p = p
	}
	r.state, r.busy = receiving, true
	if err := r.m.mtl.RecvClaimed(&r.op, r.target()); err != nil {
		r.busy = false
		r.doubt(err)
	}
}

// receivedClaimed is received for a message that was claimed: it is not aside any more.
func (r *request) receivedClaimed(res *mtl.Result) {
	if res.Err == nil || errors.Is(res.Err, framework.ErrTruncate) {
		if p, err := r.c.sender(res); err == nil {
			p.proc.Aside--
		}
	}
	r.received(res)
}

// received takes the end of a receive from the MTL.
func (r *request) received(res *mtl.Result) {
	c := r.c
	if (res.Canceled || res.Err != nil) && r.unreceived(res) {
		return
	}
	p, err := c.sender(res)
	if err != nil {
		r.fail(err)
		return
	}
	if r.m.cuts && r.state != assembling && !r.arrived(p, res) {
		return
	}
	p.took(r.plane, res.Bytes)
	r.Status.Source, r.Status.Tag, r.Status.Bytes = p.rank, int(res.Tag), int(res.Bytes)
	room := int64(len(r.buf.Bytes))
	if l := r.buf.Layout(); l != nil {
		room = l.Size()
		l.Unpack(r.buf.Bytes, r.bounce[:min(res.Bytes, room)], 0)
	}
	if res.Bytes > room {
		r.Status.Err = base.Truncated(res.Bytes, room)
	}
	if m := r.m; m.env.Hooks != nil {
		m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: p.proc.Life, Comm: c.Spec.ID, Tag: int(res.Tag), Bytes: res.Bytes, Plane: r.plane, Waited: time.Since(r.began)})
	}
	r.finish()
}

// unreceived ends a receive that has got no message, and reports whether it is one.
func (r *request) unreceived(res *mtl.Result) bool {
	switch {
	case errors.Is(res.Err, framework.ErrTruncate):
		return false
	case r.why != nil:
		r.miss()
		r.fail(r.why)
	case res.Canceled && r.user:
		r.canceled()
	case res.Canceled: // the network did it by itself
		r.doubt(&framework.TransportError{Component: "pml cm", Op: "receive",
			Err: errors.New("the network gave up on the receive: the sender left while its message was on its way")})
	default:
		r.doubt(res.Err)
	}
	return true
}

// sender returns the member that a message says it is from.
func (c *comm) sender(res *mtl.Result) (*peer, error) {
	if res.Source < 0 || int(res.Source) >= c.Len() {
		return nil, &framework.TransportError{Component: "pml cm", Op: "receive",
			Err: fmt.Errorf("message of rank %d on communicator %v of %d", res.Source, c.Spec.ID, c.Len())}
	}
	return c.peer(int(res.Source)), nil
}

// tookOut counts a message that a probe has claimed, and returns its sender. Lock held.
func (c *comm) tookOut(res *mtl.Result) (*peer, error) {
	p, err := c.sender(res)
	if err == nil {
		p.proc.Aside++
	}
	return p, err
}

// took counts a message that was received.
func (p *peer) took(plane pml.Plane, bytes int64) {
	p.proc.Received++
	p.proc.Stats.Received++
	p.proc.Stats.RecvBytes += uint64(bytes)
	p.tally.Taken[plane]++
}
