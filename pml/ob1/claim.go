package ob1

import (
	"context"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// claimed is a message that a matched probe took out of the queue. Until it is
// received it counts as pending: the communicator stays.
type claimed struct {
	c     *comm
	msg   *message // nil once it is received
	plane pml.Plane
}

// Mprobe implements pml.Comm.
func (c *comm) Mprobe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, error) {
	c.m.engine.Lock()
	defer c.m.engine.Unlock()
	msg, err := c.await(ctx, src, tag, plane)
	if err != nil {
		return nil, pml.NoMessage(), err
	}
	return c.claim(msg, plane), msg.Owner.status(), nil
}

// Improbe implements pml.Comm.
func (c *comm) Improbe(src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, bool, error) {
	c.m.engine.Lock()
	defer c.m.engine.Unlock()
	msg, err := c.probe(src, tag, plane)
	if msg == nil || err != nil {
		return nil, pml.NoMessage(), false, err
	}
	return c.claim(msg, plane), msg.Owner.status(), true, nil
}

func (c *comm) claim(msg *match.Message[message], plane pml.Plane) *claimed {
	c.queues[plane].Take(msg)
	c.Pending++
	return &claimed{c, msg.Owner, plane}
}

func (m *message) status() pml.Status {
	return pml.Status{Source: m.node.Source, Tag: m.node.Tag, Bytes: int(m.length)}
}

// receive starts the receive of the message. Lock held.
func (k *claimed) receive(buf pml.Buffer) (*request, error) {
	if k.msg == nil {
		return nil, framework.ErrClosed
	}
	r := k.c.m.newRequest(k.c)
	k.c.Pending-- // the request counts now
	r.send, r.state, r.plane, r.buf, r.tag = false, posted, k.plane, buf, k.msg.node.Tag
	r.take(k.msg)
	k.msg = nil
	return r, nil
}

// Recv implements pml.Claimed.
func (k *claimed) Recv(_ context.Context, buf pml.Buffer) (pml.Status, error) {
	e := k.c.m.engine
	e.Lock()
	defer e.Unlock()
	r, err := k.receive(buf)
	if err != nil {
		return pml.NoMessage(), err
	}
	// It has matched: it completes, or fails with the peer.
	e.Wait(nil, &r.Completion, r.First())
	st := r.Status
	r.Release()
	return st, st.Err
}

// Irecv implements pml.Claimed.
func (k *claimed) Irecv(buf pml.Buffer) (*pml.Request, error) {
	k.c.m.engine.Lock()
	defer k.c.m.engine.Unlock()
	r, err := k.receive(buf)
	if err != nil {
		return nil, err
	}
	return &r.Request, nil
}
