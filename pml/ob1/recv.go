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

// message is one that arrived before its receive: an eager message with a copy
// of its payload, or an RTS with a copy of the part that came with it.
type message struct {
	node   match.Message[message]
	p      *peer
	rts    bool
	plane  pml.Plane // in whose queue it is or was
	length int64
	handle uint64 // the sender's, of an RTS
	depth  uint8  // of an RTS
	whole  bool   // as an offer has it
	remote btl.Remote
	data   []byte
	next   *message

	// Of a message that a watcher has.
	handed    base.Claimed
	unmatched pml.Unmatched // nil: it has none
}

// Recv implements pml.Comm. The usual case is a message that is about to come
// from a known source: see receiveNow.
func (c *comm) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	e := c.m.engine
	e.Lock()
	if src >= 0 && buf.Layout() == nil && !c.slow {
		if p := c.peers.Get(src); p != nil {
			if c.m.fast++; c.m.fast%fastPerProgress == 0 {
				e.Progress()
			}
			if came, n, ok := c.receiveNow(p, buf.Bytes, tag, plane); ok {
				e.Unlock()
				if n > len(buf.Bytes) {
					err := base.Truncated(int64(n), int64(len(buf.Bytes)))
					return pml.Status{Source: src, Tag: came, Bytes: n, Err: err}, err
				}
				return pml.Status{Source: src, Tag: came, Bytes: n}, nil
			}
		}
	}
	return c.recvPosted(ctx, buf, src, tag, plane)
}

// recvPosted is Recv by way of a request. It releases the lock.
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

// postRecv makes a request of a receive and matches it with what is here. Lock
// held.
func (c *comm) postRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *request {
	m := c.m
	var p *peer
	var mp *match.Peer[request, message]
	if src != pml.AnySource {
		if p = c.peers.Get(src); p == nil {
			p = c.peer(src) // Before the request, because a process that is gone ends all requests for it.
		}
		mp = &p.match[plane]
	}
	r := m.newRequest(c)
	r.send, r.state, r.plane, r.tag = false, posted, plane, tag
	r.p, r.buf = p, buf
	r.node.Source, r.node.Tag = src, tag
	if m.env.Hooks != nil {
		m.env.Event(pml.Event{Kind: pml.EventRecv, Comm: c.Spec.ID, Tag: tag, Bytes: buf.Len(), Plane: plane})
	}
	if c.barred[plane] {
		r.fail(c.barredBy())
		return r
	}
	if found := c.queues[plane].Post(mp, &r.node); found != nil {
		msg := found.Owner
		r.p = msg.p
		r.take(msg)
		return r
	}
	if m.failures != 0 || c.refused {
		r.recheck()
	}
	return r
}

// recheck ends a posted receive if no message can come, and suspends one from any source after the death of a
// member. Lock held.
func (r *request) recheck() {
	c := r.c
	src := r.source()
	if err := c.CannotCome(src, r.plane); err != nil {
		c.queues[r.plane].Cancel(&r.node)
		r.fail(err)
	} else if src == pml.AnySource {
		r.SetSuspended(c.Suspended[r.plane])
	}
}

// take gives a receive the message that it has matched, and frees that. r.p is
// the sender. Lock held.
func (r *request) take(msg *message) {
	r.p = msg.p
	if msg.rts {
		r.accept(&offer{length: msg.length, handle: msg.handle, whole: msg.whole, remote: msg.remote, late: true, depth: msg.depth, part: msg.data}, msg.node.Tag)
	} else {
		r.deliver(msg.data, msg.node.Tag)
	}
	r.m.giveUp(msg)
}

// CannotCome implements pml.Watchable: receives and probes ask too. Where it is not known
// that a member is in the communicator, that one is asked. If processes have several ranks,
// AnySource asks none, since the ranks of a process would ask a number of members that is quadratic
// in their number. Lock held.
func (c *comm) CannotCome(src int, plane pml.Plane) error {
	if c.m.failures == 0 && !c.refused {
		return nil
	}
	if err := c.refusedBy(src); err != nil {
		return err
	}
	err := c.Comm.CannotCome(src, plane)
	if err == nil && (src != pml.AnySource || c.IsWhole()) {
		c.inquire(src)
	}
	return err
}

// deliver completes a receive with an eager message. r.p is the sender. Lock held.
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
		r.m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: r.p.proc.Life, Comm: r.c.Spec.ID, Tag: tag, Bytes: int64(len(payload)), Plane: r.plane, Waited: time.Since(r.began)})
	}
	r.finish()
}

// accept answers an RTS that has matched, and takes the part of the message that
// came with it. r.p is the sender. Lock held.
func (r *request) accept(o *offer, tag int) {
	r.Resume()
	length := o.length
	r.Status.Source, r.Status.Tag, r.Status.Bytes = r.p.rank, tag, int(length)
	r.limit = min(length, r.buf.Len())
	if r.limit < length {
		r.Status.Err = base.Truncated(length, r.limit)
	}
	if r.m.env.Hooks != nil {
		r.m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: r.p.proc.Life, Comm: r.c.Spec.ID, Tag: tag, Bytes: length, Plane: r.plane, Waited: time.Since(r.began)})
	}
	if r.takesTurn(o) || r.readRemote(&o.remote, o.handle) {
		return
	}
	r.far = o.handle
	if !r.accepts() {
		return
	}
	part := o.part
	part = part[:min(int64(len(part)), r.limit)]
	r.store(part, 0)
	if r.moved = int64(len(part)); r.moved == r.limit {
		r.finish()
	}
}

// store copies payload to its place.
func (r *request) store(payload []byte, offset int64) {
	if l := r.buf.Layout(); l != nil {
		l.Unpack(r.buf.Bytes, payload, offset)
		return
	}
	cpu.CopyOut(r.buf.Bytes[offset:], payload)
}

// keep stores a message that found no receive. Lock held.
func (c *comm) keep(p *peer, plane pml.Plane, in *inMessage) {
	m := c.m
	w := c.watchers[plane]
	if c.Closed() && w == nil {
		p.proc.drop(in)
		return
	}
	if w != nil && !in.rts && c.passEager(p, plane, in) {
		return
	}
	msg := m.newMessage(len(in.payload))
	msg.p, msg.plane, msg.rts, msg.length, msg.handle, msg.remote, msg.depth = p, plane, in.rts, in.length, in.handle, in.remote, in.depth()
	msg.whole = in.flags&flagRemote != 0
	copy(msg.data, in.payload)
	msg.node.Source, msg.node.Tag = p.rank, int(in.tag)
	p.proc.Stats.Unexpected++
	if w != nil {
		c.handOver(msg)
		return
	}
	c.queues[plane].Keep(&p.match[plane], &msg.node)
	if msg.rts {
		msg.withdrawable()
	}
	if len(c.probes) > 0 {
		c.wakeProbes()
	}
}

// newMessage returns a message with room for n bytes of payload.
func (m *Module) newMessage(n int) *message {
	msg := m.freeMessages
	if msg == nil {
		msg = new(message)
		msg.node.Owner = msg
	} else {
		m.freeMessages = msg.next
		msg.next = nil
	}
	msg.data = m.pool.get(n)
	return msg
}

// freeMessage takes a message back. Its payload has been copied.
func (m *Module) freeMessage(msg *message) {
	if msg.rts {
		msg.matched()
	}
	m.pool.put(msg.data)
	msg.data, msg.p, msg.unmatched = nil, nil, nil
	msg.next = m.freeMessages
	m.freeMessages = msg
}
