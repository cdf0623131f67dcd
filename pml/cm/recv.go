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
		var gotTag, n int
		var ok bool
		if gotTag, n, r, ok = c.recvDirect(buf, src, tag, plane); ok {
			e.Unlock()
			return pml.Status{Source: src, Tag: gotTag, Bytes: n}, nil
		}
	}
	return c.waitRecv(ctx, r, buf, src, tag, plane)
}

// waitRecv waits for the receive r, or for a new one if r is nil. It releases the lock.
func (c *comm) waitRecv(ctx context.Context, r *request, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
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

// postRecv starts a receive. Lock held.
func (c *comm) postRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *request {
	m := c.m
	var p *peer
	if src != pml.AnySource {
		if p = c.peersByRank.Get(src); p == nil {
			p = c.peer(src) // Before newRequest, because the end of a process ends all of its requests.
		}
	}
	r := m.newRequest(c)
	r.isSend, r.p, r.plane, r.tag, r.userBuf = false, p, plane, tag, buf
	if m.env.Hooks != nil {
		m.env.Event(pml.Event{Kind: pml.EventRecv, Comm: c.Spec.ID, Tag: tag, Bytes: buf.Len(), Plane: plane})
	}
	if c.IsClosed() {
		r.fail(framework.ErrClosed)
		return r
	}
	r.post()
	return r
}

// post matches a receive with the unexpected queue, defers it, or gives it to the MTL. A receive
// whose message cannot come any more probes once for one that has come already. Lock held.
func (r *request) post() {
	c, m := r.c, r.m
	if err := c.repeatMissed(r.source(), r.tag, r.plane); err != nil {
		r.fail(err)
		return
	}
	if m.unexpectedCount > 0 {
		if found := c.matchQueues[r.plane].Find(c.matchPeer(r.source(), r.plane), r.source(), r.tag); found != nil {
			c.takeUnexpected(found, r.plane).deliverTo(r)
			return
		}
	}
	m.lastPostingNumber++
	r.postingNumber = m.lastPostingNumber
	isSwept := m.mustCheckFailures && c.isSwept(r.source(), r.plane)
	if why := c.Aborted[r.plane]; why != nil && (isSwept || r.plane == pml.PointToPoint) {
		r.fail(why) // The unexpected queue may hold earlier messages.
		return
	}
	if isSwept {
		r.awaitSweep()
		return
	}
	if m.activePulls > 0 && c.pullsByPlane[r.plane].remainingMessages > 0 {
		r.deferReceive()
		return
	}
	var from mtl.Endpoint
	if r.p != nil {
		p := r.p.proc
		if !p.isConnected && p.connect() != nil {
			// Without an endpoint the MTL would match messages of other processes.
			r.fail(c.MemberError(p.Err, r.p.rank))
			return
		}
		from = p.mtlEndpoint
	}
	r.isOpBusy = true
	var err error
	if why := r.c.recvFailure(r.source(), r.plane); why != nil {
		r.state, r.endCause = seeking, why
		err = m.mtl.Probe(&r.op, from, r.envelope(), true)
	} else {
		r.state = posted
		err = m.mtl.Recv(&r.op, from, r.envelope(), r.target())
	}
	if err != nil {
		r.isOpBusy = false
		if r.endCause != nil {
			r.fail(r.endCause)
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

// matchPeer returns the queues of a source, nil for any source.
func (c *comm) matchPeer(src int, plane pml.Plane) *match.Peer[request, message] {
	if src == pml.AnySource {
		return nil
	}
	return &c.peer(src).matchPeers[plane]
}

func (r *request) envelope() mtl.Envelope { return r.c.from(r.p, r.tag, uint32(r.plane)) }

// target returns the buffer that the MTL writes the message into.
func (r *request) target() []byte {
	if l := r.userBuf.Layout(); l != nil {
		return r.bounceBuffer(max(l.Size(), r.m.minRecvBytes))
	}
	return r.bufferOrBounce(r.userBuf.Bytes)
}

// bufferOrBounce returns b, or the bounce buffer if b is too short for an RTS.
func (r *request) bufferOrBounce(b []byte) []byte {
	if int64(len(b)) < r.m.minRecvBytes {
		return r.bounceBuffer(r.m.minRecvBytes)
	}
	return b
}

// receiveClaimed receives the message that a seeking receive has claimed.
func (r *request) receiveClaimed() {
	if p, err := r.c.countClaimed(&r.op.Result); err == nil {
		r.p = p
	}
	r.state, r.isOpBusy = receiving, true
	if err := r.m.mtl.RecvClaimed(&r.op, r.target()); err != nil {
		r.isOpBusy = false
		r.doubt(err)
	}
}

// receivedClaimed is recvDone for a claimed message. It no longer counts as Claimed once it is received.
func (r *request) receivedClaimed(res *mtl.Result) {
	if res.Err == nil || errors.Is(res.Err, framework.ErrTruncate) {
		if p, err := r.c.senderOf(res); err == nil {
			p.proc.Claimed--
		}
	}
	r.recvDone(res)
}

// recvDone handles the completion of a receive by the MTL.
func (r *request) recvDone(res *mtl.Result) {
	c := r.c
	if (res.Canceled || res.Err != nil) && r.recvFailed(res) {
		return
	}
	p, err := c.senderOf(res)
	if err != nil {
		r.fail(err)
		return
	}
	if r.m.hasMessageLimit && r.state != receivingFragment && !r.acceptReceived(p, res) {
		return
	}
	p.countReceived(r.plane, res.Bytes)
	r.Status.Source, r.Status.Tag, r.Status.Bytes = p.rank, int(res.Tag), int(res.Bytes)
	room := int64(len(r.userBuf.Bytes))
	if l := r.userBuf.Layout(); l != nil {
		room = l.Size()
		l.Unpack(r.userBuf.Bytes, r.bounceBuf[:min(res.Bytes, room)], 0)
	}
	if res.Bytes > room {
		r.Status.Err = base.Truncated(res.Bytes, room)
	}
	if m := r.m; m.env.Hooks != nil {
		m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: p.proc.Incarnation, Comm: c.Spec.ID, Tag: int(res.Tag), Bytes: res.Bytes, Plane: r.plane, Waited: time.Since(r.startedAt)})
	}
	r.finish()
}

// recvFailed fails a receive that has no message. It returns false if the message was truncated.
func (r *request) recvFailed(res *mtl.Result) bool {
	switch {
	case errors.Is(res.Err, framework.ErrTruncate):
		return false
	case r.endCause != nil:
		r.recordMissed()
		r.fail(r.endCause)
	case res.Canceled && r.isCanceled:
		r.finishCanceled()
	case res.Canceled: // The network canceled it without a request of this process.
		r.doubt(&framework.TransportError{Component: "pml cm", Op: "receive",
			Err: errors.New("the network canceled the receive: the sender left before its message was complete")})
	default:
		r.doubt(res.Err)
	}
	return true
}

// senderOf returns the member that a result names as its source.
func (c *comm) senderOf(res *mtl.Result) (*peer, error) {
	if res.Source < 0 || int(res.Source) >= c.Len() {
		return nil, &framework.TransportError{Component: "pml cm", Op: "receive",
			Err: fmt.Errorf("message of rank %d on communicator %v of %d members: the sender is not a member", res.Source, c.Spec.ID, c.Len())}
	}
	return c.peer(int(res.Source)), nil
}

// countClaimed counts a message that a probe has claimed, and returns its sender. Lock held.
func (c *comm) countClaimed(res *mtl.Result) (*peer, error) {
	p, err := c.senderOf(res)
	if err == nil {
		p.proc.Claimed++
	}
	return p, err
}

// countReceived counts a message that was received.
func (p *peer) countReceived(plane pml.Plane, bytes int64) {
	p.proc.Received++
	p.proc.Stats.Received++
	p.proc.Stats.RecvBytes += uint64(bytes)
	p.messageTally.Consumed[plane]++
}
