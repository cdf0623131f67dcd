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
	r, ok := c.sendDirect(buf, dst, tag, plane, mode)
	if ok && r == nil {
		e.Unlock()
		return nil
	}
	return c.finishSend(ctx, r, buf, dst, tag, plane, mode)
}

// finishSend waits for the send r, or for a new one if r is nil. It releases the lock.
func (c *comm) finishSend(ctx context.Context, r *request, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (err error) {
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
	r, ok := c.sendDirect(buf, dst, tag, plane, mode)
	switch {
	case !ok:
		var err error
		if r, err = c.startSend(buf, dst, tag, plane, mode); err != nil {
			return nil, err
		}
	case r == nil:
		r = c.m.newCompleteSend()
	}
	return &r.Request, nil
}

// startSend starts a send and advances it as far as possible without waiting for the
// peer. Lock held.
func (c *comm) startSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*request, error) {
	if err := c.StartError(plane); err != nil {
		return nil, err
	}
	m := c.m
	p := c.peersByRank.Get(dst)
	if p == nil {
		p = c.peer(dst)
	}
	var failure error
	if !p.proc.isConnected || p.proc.Err != nil {
		failure = p.proc.connect()
	}
	r := c.newSendRequest(p, buf, tag, plane, mode)
	if failure == nil && p.hasRefused {
		failure = m.procs.NotMemberError(p.proc.Incarnation)
	}
	if failure != nil {
		r.fail(c.MemberError(failure, dst))
		return r, nil
	}
	p.proc.Stats.Sent++
	p.proc.Stats.SentBytes += uint64(buf.Len())
	c.emitSend(p, tag, buf.Len(), plane)
	if p.canSend {
		r.transmit()
		return r, nil
	}
	act := p.idExchange.Send()
	switch {
	case act&cid.SendCompact != 0:
		r.transmit()
	case act&cid.Drop != 0:
		r.dropSend()
	default:
		r.state = held
		r.enqueue(&p.heldSends)
		if act&cid.SendRequest != 0 || !p.hasSentID {
			p.notify(controlRequest)
		}
	}
	return r, nil
}

// newSendRequest starts the request of a send. Lock held.
func (c *comm) newSendRequest(p *peer, buf pml.Buffer, tag int, plane pml.Plane, mode pml.Mode) *request {
	r := c.m.newRequest(c)
	c.m.pendingSends++
	r.isSend, r.mode, r.plane = true, mode, plane
	r.p, r.userBuf, r.tag = p, buf, tag
	r.Status = pml.NoMessage()
	return r
}

// emitSend emits the event of a send.
func (c *comm) emitSend(p *peer, tag int, bytes int64, plane pml.Plane) {
	c.m.env.Event(pml.Event{Kind: pml.EventSend, Peer: p.proc.Incarnation, Comm: c.Spec.ID, Tag: tag, Bytes: bytes, Plane: plane})
}

// transmit submits a send to the MTL. Lock held.
func (r *request) transmit() {
	m, p := r.m, r.p
	if p.syncSends.hasStopped && r.plane == pml.PointToPoint {
		r.dropSend()
		return
	}
	b := r.contents()
	if m.hasMessageLimit && p.needsRTS(b, r.mode) {
		r.sendRTS(b)
		return
	}
	r.handleSendResult(m.mtl.Send(&r.op, p.proc.mtlEndpoint, r.c.to(p, r.tag, uint32(r.plane)), b, modes[r.mode]))
}

// handleSendResult handles the result of mtl.Send. Lock held.
func (r *request) handleSendResult(done bool, err error) {
	if err != nil {
		r.doubt(r.sendError(err))
		return
	}
	r.p.countSent(r.plane, r.tag)
	if done {
		r.finish()
		return
	}
	r.state, r.isOpBusy = submitted, true
	r.trackSync()
	if r.m.mustCheckFailures {
		r.p.inquire()
	}
}

// contents returns the message in one piece, packed if buf has a layout.
func (r *request) contents() []byte {
	l := r.userBuf.Layout()
	if l == nil {
		return r.userBuf.Bytes
	}
	b := r.bounceBuffer(l.Size())
	l.Pack(b, r.userBuf.Bytes, 0)
	return b
}

// bounceBuffer returns the request's bounce buffer, n bytes.
func (r *request) bounceBuffer(n int64) []byte {
	if int64(cap(r.bounceBuf)) < n {
		r.bounceBuf = make([]byte, n)
	}
	return r.bounceBuf[:n]
}

// sendDone handles the completion of a send by the MTL.
func (r *request) sendDone(err error) {
	if err != nil {
		// The message may have arrived. The counts of the communicator exclude it, so that
		// the receiver does not wait for it. A goodbye includes it, so that it does not
		// replace another message in the receiver's count.
		r.p.messageTally.Sent[r.plane]--
		r.p.proc.sentOnClosed++
		if r.p.syncSends.hasStopped {
			r.p.notify(controlStopped)
		}
		r.doubt(r.sendError(err))
		return
	}
	r.finishMatched()
}

func (r *request) sendError(err error) error {
	if errors.Is(err, framework.ErrTransport) {
		return err
	}
	return &framework.TransportError{Component: "pml cm", Peer: r.p.proc.String(), Op: "send", Err: err}
}

// dropSend ends a send to a member that receives no more on the communicator, and counts it.
func (r *request) dropSend() {
	r.p.proc.Stats.Dropped++
	r.finishDropped()
}

// finishDropped completes a send whose message is dropped. A synchronous one fails.
func (r *request) finishDropped() {
	switch {
	case r.c.Aborted[r.plane] != nil:
		r.finishCanceled()
	case r.mode != pml.Synchronous:
		r.finish()
	case r.p.syncSends.isRevoked:
		r.fail(fmt.Errorf("%w by rank %d, which has dropped the message", framework.ErrRevoked, r.p.rank))
	default:
		r.fail(r.m.procs.DroppedError(r.p.proc.Incarnation))
	}
}

// drainHeld submits the held sends in order, or drops them. A completion callback may start
// another send, which is held behind the others. Lock held.
func (p *peer) drainHeld() {
	for e := p.heldSends.First(); e != nil; e = p.heldSends.First() {
		r := e.Owner
		switch r.dequeue(); {
		case p.proc.Err != nil:
			r.fail(r.c.MemberError(p.proc.Err, p.rank))
		case p.idExchange.Closed():
			r.dropSend()
		default:
			r.transmit()
		}
	}
	p.idExchange.Drained()
	p.updateReady()
}
