package ob1

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// matchedRTS is an RTS with its receive.
type matchedRTS struct {
	length int64
	// handle, packTime, pattern, isDescribed and remote come from the RTS, as in parsedMessage.
	handle      uint64
	packTime    time.Duration
	pattern     pattern
	isDescribed bool
	remote      btl.Remote
	// isUnexpected is set if the RTS arrived before the receive was posted.
	isUnexpected bool
	// fragment is valid during the call only.
	fragment []byte
}

// Recv implements pml.Comm. A message from a known source usually arrives while the caller
// polls (receivePolling).
func (c *comm) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	e := c.m.engine
	e.Lock()
	if src >= 0 && buf.Layout() == nil && !c.needsSlowPath {
		if p := c.peers.Get(src); p != nil {
			if c.m.fastReceives++; c.m.fastReceives%receivesPerProgress == 0 {
				e.Progress()
			}
			if gotTag, n, ok := c.receivePolling(p, buf.Bytes, tag, plane); ok {
				e.Unlock()
				if n > len(buf.Bytes) {
					err := base.Truncated(int64(n), int64(len(buf.Bytes)))
					return pml.Status{Source: src, Tag: gotTag, Bytes: n, Err: err}, err
				}
				return pml.Status{Source: src, Tag: gotTag, Bytes: n}, nil
			}
		}
	}
	return c.recvPosted(ctx, buf, src, tag, plane)
}

// recvPosted implements Recv by a request. It releases the lock.
func (c *comm) recvPosted(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	st, err := c.postRecv(buf, src, tag, plane).Conclude(ctx)
	c.m.engine.Unlock()
	return st, err
}

// Irecv implements pml.Comm.
func (c *comm) Irecv(buf pml.Buffer, src, tag int, plane pml.Plane) (*pml.Request, error) {
	c.m.engine.Lock()
	r := c.postRecv(buf, src, tag, plane)
	c.m.engine.Unlock()
	return &r.Request, nil
}

// StartRecv implements pml.Comm.
func (c *comm) StartRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *pml.Request {
	r := &c.postRecv(buf, src, tag, plane).Request
	r.Resume()
	return r
}

// postRecv starts a receive with a request, and matches it with unexpected messages. Lock held.
func (c *comm) postRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *request {
	m := c.m
	var p *peer
	var mp *match.Peer[request, unexpectedMessage]
	if src != pml.AnySource {
		if p = c.peers.Get(src); p == nil {
			// Before the request starts, since the failure of a process ends all its requests.
			p = c.peer(src)
		}
		mp = &p.match[plane]
	}
	r := m.newRequest(c)
	r.isSend, r.state, r.plane, r.tag = false, statePosted, plane, tag
	r.p, r.buf = p, buf
	r.node.Source, r.node.Tag = src, tag
	if m.env.Hooks != nil {
		m.env.Event(pml.Event{Kind: pml.EventRecv, Comm: c.Spec.ID, Tag: tag, Bytes: buf.Len(), Plane: plane})
	}
	if c.isBarred[plane] {
		r.fail(c.barError())
		return r
	}
	if found := c.queues[plane].Post(mp, &r.node); found != nil {
		msg := found.Owner
		r.p = msg.p
		r.takeMessage(msg)
		return r
	}
	if m.failures != 0 || c.hasRefusal {
		r.recheck()
	}
	return r
}

// recheck fails a posted receive if no message can arrive, and suspends one from AnySource
// after the failure of a member. Lock held.
func (r *request) recheck() {
	c := r.c
	src := r.source()
	if err := c.SourceError(src, r.plane); err != nil {
		c.queues[r.plane].Cancel(&r.node)
		r.fail(err)
	} else if src == pml.AnySource {
		r.SetSuspended(c.Suspended[r.plane])
	}
}

// SourceError implements pml.Watchable. Receives and probes use it as well. It inquires
// members that may not have created the communicator. With several ranks per process,
// AnySource inquires none, since the number of inquiries would be quadratic in the ranks.
// Lock held.
func (c *comm) SourceError(src int, plane pml.Plane) error {
	if c.m.failures == 0 && !c.hasRefusal {
		return nil
	}
	if err := c.refusalError(src); err != nil {
		return err
	}
	err := c.Comm.SourceError(src, plane)
	if err == nil && (src != pml.AnySource || c.IsWhole()) {
		c.inquire(src)
	}
	return err
}

// deliver completes a receive with an eager message from r.p. Lock held.
func (r *request) deliver(payload []byte, tag int) {
	r.Status.Source, r.Status.Tag, r.Status.Bytes = r.p.rank, tag, len(payload)
	if r.buf.Layout() == nil {
		if copy(r.buf.Bytes, payload) < len(payload) {
			r.Status.Err = base.Truncated(int64(len(payload)), int64(len(r.buf.Bytes)))
		}
	} else {
		r.Status.Err = base.Deliver(r.buf, payload)
	}
	if r.m.env.Hooks != nil {
		r.m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: r.p.proc.Incarnation, Comm: r.c.Spec.ID, Tag: tag, Bytes: int64(len(payload)), Plane: r.plane, Waited: time.Since(r.startedAt)})
	}
	r.finish()
}

// acceptRTS answers a matched RTS from r.p, and stores its fragment. Lock held.
func (r *request) acceptRTS(o *matchedRTS, tag int) {
	r.Resume()
	r.beginRendezvous()
	length := o.length
	r.Status.Source, r.Status.Tag, r.Status.Bytes = r.p.rank, tag, int(length)
	x := r.rndv
	x.bytesWanted, x.peerHandle = min(length, r.buf.Len()), o.handle
	if x.bytesWanted < length {
		r.Status.Err = base.Truncated(length, x.bytesWanted)
	}
	if r.m.env.Hooks != nil {
		r.m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: r.p.proc.Incarnation, Comm: r.c.Spec.ID, Tag: tag, Bytes: length, Plane: r.plane, Waited: time.Since(r.startedAt)})
	}
	switch {
	case r.schedule(o):
	case r.canGet(&o.remote):
		x.remote = o.remote
		r.startTransfer(&x.get)
	default:
		x.fragment = o.fragment[:min(int64(len(o.fragment)), x.bytesWanted)]
		x.bytesMoved = int64(len(x.fragment))
		r.startTransfer(pipelineReceive{})
	}
}

// store copies payload to its offset in the buffer.
func (r *request) store(payload []byte, offset int64) {
	if l := r.buf.Layout(); l != nil {
		l.Unpack(r.buf.Bytes, payload, offset)
		return
	}
	cpu.CopyOut(r.buf.Bytes[offset:], payload)
}
