package compose

import (
	"context"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// comm is a communicator with members on the node and elsewhere.
type comm struct {
	j         *Joiner
	spec      pml.CommSpec
	sides     *Sides
	onNode    *pml.RankSet // sides's
	network   pml.Comm
	node      pml.Comm
	watchable pml.Watchable // node
	byPlane   [pml.Planes]*wildcards
	suspended [pml.Planes]error // Reasons of Suspend.
	closing   bool              // Close was called
	closed    bool              // and it has closed node
	onClose   func()
}

// part returns the PML's communicator that has the messages of a member.
func (c *comm) part(rank int) pml.Comm {
	if c.onNode.Has(rank) {
		return c.node
	}
	return c.network
}

// Send implements pml.Comm.
func (c *comm) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	return c.part(dst).Send(ctx, buf, dst, tag, plane, mode)
}

// Isend implements pml.Comm.
func (c *comm) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	return c.part(dst).Isend(buf, dst, tag, plane, mode)
}

// StartSend implements pml.Comm.
func (c *comm) StartSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	return c.part(dst).StartSend(buf, dst, tag, plane, mode)
}

// Recv implements pml.Comm.
func (c *comm) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	if src != pml.AnySource {
		if st, err := c.part(src).Recv(ctx, buf, src, tag, plane); err != pml.ErrWatched {
			return st, err
		}
	}
	c.j.engine.Lock()
	defer c.j.engine.Release()
	if src == pml.AnySource && c.suspended[plane] != nil {
		if st, ok, err := c.recvSuspended(ctx, buf, tag, plane); ok || err != nil {
			return st, err
		}
	}
	return c.wildcards(plane).post(buf, src, tag).Conclude(ctx)
}

// Irecv implements pml.Comm.
func (c *comm) Irecv(buf pml.Buffer, src, tag int, plane pml.Plane) (*pml.Request, error) {
	if src != pml.AnySource && !c.onNode.Has(src) {
		return c.network.Irecv(buf, src, tag, plane)
	}
	c.j.engine.Lock()
	defer c.j.engine.Release()
	return c.startRecv(buf, src, tag, plane), nil
}

// StartRecv implements pml.Comm.
func (c *comm) StartRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *pml.Request {
	r := c.startRecv(buf, src, tag, plane)
	r.Resume()
	return r
}

func (c *comm) startRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *pml.Request {
	switch {
	case src != pml.AnySource && !c.onNode.Has(src):
		return c.network.StartRecv(buf, src, tag, plane)
	case src != pml.AnySource && c.byPlane[plane] == nil:
		return c.node.StartRecv(buf, src, tag, plane)
	}
	return &c.wildcards(plane).post(buf, src, tag).Request
}

// wildcards returns those of a plane, which is watched on the node from then on: since
// a receive or a probe from any source needs it. Lock held.
func (c *comm) wildcards(plane pml.Plane) *wildcards {
	w := c.byPlane[plane]
	if w == nil {
		w = newWildcards(c, plane)
		if c.byPlane[plane] = w; !c.closing {
			w.watch()
		}
	}
	return w
}

// Abort implements pml.Comm.
func (c *comm) Abort(plane pml.Plane, err error) {
	c.node.Abort(plane, err)
	c.network.Abort(plane, err)
}

// Close implements pml.Comm.
func (c *comm) Close() {
	e := c.j.engine
	e.Lock()
	again := c.closing
	c.closing = true
	e.Unlock()
	if again {
		return
	}
	c.network.Close()
	c.node.Close()
	e.Lock()
	defer e.Release()
	c.closed = true
	if c.onClose != nil {
		c.onClose()
	}
	for _, w := range c.byPlane {
		if w != nil {
			w.wakeProbes()
			w.mayEnd()
		}
	}
}

// over returns why nothing begins any more, or nil. Lock held.
func (c *comm) over() error {
	if c.closing {
		return framework.ErrClosed
	}
	return nil
}
