package compose

import (
	"context"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// comm is a communicator with members on the node and elsewhere.
type comm struct {
	j     *Joiner
	spec  pml.CommSpec
	sides *Sides
	// onNode is sides.OnNode.
	onNode      *pml.RankSet
	networkComm pml.Comm
	nodeComm    pml.Comm
	// watchableNode is nodeComm.
	watchableNode pml.Watchable
	byPlane       [pml.Planes]*wildcards
	// suspendReasons has the reasons of Suspend.
	suspendReasons [pml.Planes]error
	// isClosing is set once Close was called, and isNodeClosed once it has closed nodeComm.
	isClosing    bool
	isNodeClosed bool
	onClose      func()
}

// partOf returns the Comm that has the messages of a member.
func (c *comm) partOf(rank int) pml.Comm {
	if c.onNode.Has(rank) {
		return c.nodeComm
	}
	return c.networkComm
}

// Send implements pml.Comm.
func (c *comm) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	return c.partOf(dst).Send(ctx, buf, dst, tag, plane, mode)
}

// Isend implements pml.Comm.
func (c *comm) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	return c.partOf(dst).Isend(buf, dst, tag, plane, mode)
}

// StartSend implements pml.Comm.
func (c *comm) StartSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	return c.partOf(dst).StartSend(buf, dst, tag, plane, mode)
}

// Recv implements pml.Comm.
func (c *comm) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	if src != pml.AnySource {
		if st, err := c.partOf(src).Recv(ctx, buf, src, tag, plane); err != pml.ErrWatched {
			return st, err
		}
	}
	c.j.engine.Lock()
	defer c.j.engine.Release()
	if src == pml.AnySource && c.suspendReasons[plane] != nil {
		if st, ok, err := c.recvSuspended(ctx, buf, tag, plane); ok || err != nil {
			return st, err
		}
	}
	return c.wildcards(plane).post(buf, src, tag).Conclude(ctx)
}

// Irecv implements pml.Comm.
func (c *comm) Irecv(buf pml.Buffer, src, tag int, plane pml.Plane) (*pml.Request, error) {
	if src != pml.AnySource && !c.onNode.Has(src) {
		return c.networkComm.Irecv(buf, src, tag, plane)
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
		return c.networkComm.StartRecv(buf, src, tag, plane)
	case src != pml.AnySource && c.byPlane[plane] == nil:
		return c.nodeComm.StartRecv(buf, src, tag, plane)
	}
	return &c.wildcards(plane).post(buf, src, tag).Request
}

// wildcards returns the wildcards of a plane, which is watched on the node from the first call on. Lock held.
func (c *comm) wildcards(plane pml.Plane) *wildcards {
	w := c.byPlane[plane]
	if w == nil {
		w = newWildcards(c, plane)
		if c.byPlane[plane] = w; !c.isClosing {
			w.watch()
		}
	}
	return w
}

// Abort implements pml.Comm.
func (c *comm) Abort(plane pml.Plane, err error) {
	c.nodeComm.Abort(plane, err)
	c.networkComm.Abort(plane, err)
}

// Close implements pml.Comm.
func (c *comm) Close() {
	e := c.j.engine
	e.Lock()
	isRepeated := c.isClosing
	c.isClosing = true
	e.Unlock()
	if isRepeated {
		return
	}
	c.networkComm.Close()
	c.nodeComm.Close()
	e.Lock()
	defer e.Release()
	c.isNodeClosed = true
	if c.onClose != nil {
		c.onClose()
	}
	for _, w := range c.byPlane {
		if w != nil {
			w.wakeProbes()
			w.endIfUnused()
		}
	}
}

// closedError returns ErrClosed after Close, otherwise nil. Lock held.
func (c *comm) closedError() error {
	if c.isClosing {
		return framework.ErrClosed
	}
	return nil
}
