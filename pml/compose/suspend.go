package compose

import (
	"context"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// Suspend implements pml.Comm. It suspends the receives of this communicator. Their receives in the network continue, so
// that both sides can match. With a nil reason the parts end receives from any source if no other member is left.
func (c *comm) Suspend(plane pml.Plane, why error) {
	e := c.j.engine
	e.Lock()
	c.suspendReasons[plane] = why
	if w := c.byPlane[plane]; w != nil {
		w.matchQueues.Posted(nil, func(r *match.Recv[request]) { r.Owner.SetSuspended(why) })
		w.wakeProbes()
	}
	e.Release()
	if why == nil {
		c.nodeComm.Suspend(plane, nil)
		c.networkComm.Suspend(plane, nil)
	}
}

// recvSuspended is a blocking Recv from any source during a suspension. It receives a message that has arrived on the node
// or in the network. Without one, and without an error, the caller posts the receive. Lock held, and released meanwhile.
func (c *comm) recvSuspended(ctx context.Context, buf pml.Buffer, tag int, plane pml.Plane) (st pml.Status, ok bool, err error) {
	c.j.engine.Release()
	defer c.j.engine.Lock()
	k, st, ok, err := c.Improbe(pml.AnySource, tag, plane)
	if ok {
		st, err = k.Recv(ctx, buf)
	}
	return st, ok, err
}

// pendingReason returns the reason for not waiting for a message of any source, or nil. Lock held.
func (w *wildcards) pendingReason() error {
	if w.lostError != nil {
		return w.lostError
	}
	return w.c.suspendReasons[w.plane]
}
