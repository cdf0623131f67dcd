package cm

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Send implements pml.Comm.
func (c *comm) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	e := c.m.engine
	e.Lock()
	r, ok := c.sendNow(buf, dst, tag, plane, mode)
	if ok && r == nil {
		e.Unlock()
		return nil
	}
	return c.conclude(ctx, r, buf, dst, tag, plane, mode)
}

// conclude is Send where something is left to do: r is its request, or nil. It releases the
// lock.
func (c *comm) conclude(ctx context.Context, r *request, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (err error) {
	if r == nil {
		r, err = c.startSend(buf, dst, tag, plane, mode)
	}
	if err == nil {
		_, err = r.Conclude(ctx)
	}
	c.m.engine.Unlock()
	return err
}

// Isend implements pml.Comm.
func (c *comm) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	c.m.engine.Lock()
	r, err := c.StartSend(buf, dst, tag, plane, mode)
	c.m.engine.Unlock()
	return r, err
}

// StartSend implements pml.Comm.
func (c *comm) StartSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	r, ok := c.sendNow(buf, dst, tag, plane, mode)
	switch {
	case !ok:
		var err error
		if r, err = c.startSend(buf, dst, tag, plane, mode); err != nil {
			return nil, err
		}
	case r == nil:
		r = c.m.sentRequest()
	}
	return &r.Request, nil
}

// startSend makes a request of a send and brings it as far as it goes now. It
// never waits for the peer. Lock held.
func (c *comm) startSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*request, error) {
	if err := c.Over(plane); err != nil {
		return nil, err
	}
	m := c.m
	p := c.peers.Get(dst)
	if p == nil {
		p = c.peer(dst)
	}
	var gone error
	if !p.proc.connected || p.proc.Err != nil {
		gone = p.proc.connect()
	}
	r := c.sendRequest(p, buf, tag, plane, mode)
	if gone == nil && p.refused {
		gone = m.procs.NotMember(p.proc.Life)
	}
	if gone != nil {
		r.fail(c.Explain(gone, dst))
		return r, nil
	}
	p.proc.Stats.Sent++
	p.proc.Stats.SentBytes += uint64(buf.Len())
	c.sending(p, tag, buf.Len(), plane)
	if p.ready {
		r.transmit()
		return r, nil
	}
	act := p.exchange.Send()
	switch {
	case act&cid.SendCompact != 0:
		r.transmit()
	case act&cid.Drop != 0:
		r.drop()
	default:
		r.state = held
		r.hold(&p.held)
		if act&cid.SendRequest != 0 || !p.asked {
			p.tell(controlRequest)
		}
	}
	return r, nil
}

// sendRequest makes a request of a send. Lock held.
func (c *comm) sendRequest(p *peer, buf pml.Buffer, tag int, plane pml.Plane, mode pml.Mode) *request {
	r := c.m.newRequest(c)
	c.m.sends++
	r.send, r.mode, r.plane = true, mode, plane
	r.p, r.buf, r.tag = p, buf, tag
	r.Status = pml.NoMessage()
	return r
}

// sending tells the hooks of a send.
func (c *comm) sending(p *peer, tag int, bytes int64, plane pml.Plane) {
	c.m.env.Event(pml.Event{Kind: pml.EventSend, Peer: p.proc.Life, Comm: c.Spec.ID, Tag: tag, Bytes: bytes, Plane: plane})
}

// transmit gives a send to the MTL. Lock held.
func (r *request) transmit() {
	m, p := r.m, r.p
	if p.syncs.hasStopped && r.plane == pml.PointToPoint {
		r.drop()
		return
	}
	b := r.contents()
	if m.cuts && p.mustCut(b, r.mode) {
		r.announce(b)
		return
	}
	r.given(m.mtl.Send(&r.op, p.proc.to, r.c.to(p, r.tag, uint32(r.plane)), b, modes[r.mode]))
}

// given takes what the MTL has said to a send. Lock held.
func (r *request) given(done bool, err error) {
	if err != nil {
		r.doubt(r.sendError(err))
		return
	}
	r.p.counts(r.plane, r.tag)
	if done {
		r.finish()
		return
	}
	r.state, r.busy = sent, true
	r.track()
	if r.m.failures {
		r.p.inquire()
	}
}

// contents returns the message as it travels.
func (r *request) contents() []byte {
	l := r.buf.Layout()
	if l == nil {
		return r.buf.Bytes
	}
	b := r.room(l.Size())
	l.Pack(b, r.buf.Bytes, 0)
	return b
}

// room returns the request's own buffer of n bytes.
func (r *request) room(n int64) []byte {
	if int64(cap(r.bounce)) < n {
		r.bounce = make([]byte, n)
	}
	return r.bounce[:n]
}

// sendDone takes the end of a send from the MTL.
func (r *request) sendDone(err error) {
	if err != nil {
		// It may have arrived, or not: nobody is to wait for it on the communicator. A
		// goodbye counts it, so that no other message is taken for it.
		r.p.tally.Sent[r.plane]--
		r.p.proc.sent++
		if r.p.syncs.hasStopped {
			r.p.tell(controlStopped)
		}
		r.doubt(r.sendError(err))
		return
	}
	r.matched()
}

func (r *request) sendError(err error) error {
	if errors.Is(err, framework.ErrTransport) {
		return err
	}
	return &framework.TransportError{Component: "pml cm", Peer: r.p.proc.String(), Op: "send", Err: err}
}

// drop ends a send to a member that has closed the communicator, and counts it.
func (r *request) drop() {
	r.p.proc.Stats.Dropped++
	r.dropped()
}

// dropped ends a send whose message nobody receives. A synchronous one fails.
func (r *request) dropped() {
	switch {
	case r.c.Aborted[r.plane] != nil:
		r.canceled()
	case r.mode != pml.Synchronous:
		r.finish()
	case r.p.syncs.isRevoked:
		r.fail(fmt.Errorf("%w by rank %d, which has dropped the message", framework.ErrRevoked, r.p.rank))
	default:
		r.fail(r.m.procs.Dropped(r.p.proc.Life))
	}
}

// drain sends what was held, in its order, or drops it. The MTL refuses nothing, so
// that it all goes at once. Who hears that a send is complete may start the next, which
// is held behind the others. Lock held.
func (p *peer) drain() {
	for e := p.held.First(); e != nil; e = p.held.First() {
		r := e.Owner
		switch r.unhold(); {
		case p.proc.Err != nil:
			r.fail(r.c.Explain(p.proc.Err, p.rank))
		case p.exchange.Closed():
			r.drop()
		default:
			r.transmit()
		}
	}
	p.exchange.Drained()
	p.learnt()
}
