package mpi

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// Dup makes a communicator with the same members and another context
// (MPI_Comm_dup), and with copies of the attributes whose keys say so. It is
// collective, but sends nothing and waits for nobody: a member may send on the
// new one before others have called Dup. (Once in 65535 creations from one
// communicator the members meet to draw new ids.)
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	if err := c.collective.enter(ctx); err != nil {
		return nil, err
	}
	d, err := c.dup(ctx)
	if err := c.collective.leave(ctx, "dup", err); err != nil {
		return nil, err
	}
	d.attrs = c.copyAttrs()
	return d, nil
}

func (c *Comm) dup(ctx context.Context) (*Comm, error) {
	ids, err := c.derive(ctx, 1)
	if err != nil {
		return nil, err
	}
	if err := c.session.addComm(); err != nil {
		return nil, err
	}
	return c.twin(ids[0])
}

// twin makes a communicator with c's members, which the session has counted. On
// an error it is not counted any more.
func (c *Comm) twin(id cid.Extended) (*Comm, error) {
	local, err := c.module.CIDs().Reserve()
	if err != nil {
		c.session.doneComm()
		return nil, err
	}
	return c.child(c.group, pml.CommSpec{ID: id, Local: local, Group: c.spec.Group, Rank: c.rank})
}

// child makes a communicator below c, which the session has counted. On an error
// it is not counted any more, and spec.Local is free again.
func (c *Comm) child(g *Group, spec pml.CommSpec) (*Comm, error) {
	d, err := newComm(c.session, g, c.module, spec, c.values)
	if err != nil {
		c.session.doneComm()
	}
	return d, err
}

// derive returns the ids of the next n children, the same in all members. When
// the base has no more, all members draw a new one.
func (c *Comm) derive(ctx context.Context, n int) ([]cid.Extended, error) {
	k := &c.collective
	if before := k.idup; before != nil {
		if err := before.await(background(ctx)); err != nil {
			return nil, err
		}
		k.idup = nil
	}
	return c.deriveNow(ctx, n)
}

func (c *Comm) deriveNow(ctx context.Context, n int) ([]cid.Extended, error) {
	d := &c.collective.children
	ids := make([]cid.Extended, 0, n)
	for {
		some, err := d.Next(min(n-len(ids), d.Left()))
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
		if len(ids) == n {
			return ids, nil
		}
		// The tag begins with a byte that keeps it from a user's.
		made, err := c.session.engine.Construct(background(ctx), c.group.members, "\x00children of "+c.spec.ID.String(), nil)
		if err != nil {
			return nil, err
		}
		d.Rebase(made.ContextID)
	}
}

// CommRequest is the creation of a communicator in progress. Use it by the
// pointer. Wait, or the Test that says so, gives the communicator, once; then
// the request is used up.
type CommRequest struct {
	done chan struct{} // closed when the creation has ended
	comm *Comm
	err  error
	used atomic.Bool
}

// Idup starts a Dup (MPI_Comm_idup). Other operations of the communicator may be
// called before it is complete. Attributes are copied now. Session.Close is
// ErrPending until the new communicator has been taken and closed.
func (c *Comm) Idup() (*CommRequest, error) {
	k := &c.collective
	if err := k.enter(nil); err != nil {
		return nil, err
	}
	defer k.leave(nil, "idup", nil)
	if err := c.session.addComm(); err != nil {
		return nil, err
	}
	r := &CommRequest{done: make(chan struct{})}
	before := k.idup
	if before != nil && before.ended() {
		before = nil
	}
	k.idup = r
	attrs := c.copyAttrs()
	if before == nil && k.children.Left() > 0 {
		c.finishIdup(nil, r, attrs) // needs nobody: the usual case
	} else {
		go c.finishIdup(before, r, attrs)
	}
	return r, nil
}

// finishIdup makes the communicator after the one before. Deriving has a
// deadline (bootstrap.timeout), so that it ends.
func (c *Comm) finishIdup(before, r *CommRequest, attrs []attribute) {
	defer close(r.done)
	var ids []cid.Extended
	if before != nil {
		r.err = before.await(context.Background())
	}
	if r.err == nil {
		ids, r.err = c.deriveNow(context.Background(), 1)
	}
	if r.err == nil {
		r.comm, r.err = c.twin(ids[0])
	} else {
		c.session.doneComm()
	}
	if r.err != nil {
		r.err = c.collective.fail(fmt.Errorf("idup: %w", r.err))
		deleteAttrs(attrs)
		return
	}
	r.comm.attrs = attrs
}

// await waits for the end of the creation, and returns its error.
func (r *CommRequest) await(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ended reports whether the creation has ended.
func (r *CommRequest) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Wait blocks until the creation has ended, and returns its outcome. If ctx ends
// first only the wait ends. ErrClosed for a request that is used up.
func (r *CommRequest) Wait(ctx context.Context) (*Comm, error) {
	if r == nil || r.done == nil || r.used.Load() {
		return nil, errInactive()
	}
	ctx = background(ctx)
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, ended(ctx, "wait", context.Cause(ctx))
	}
	return r.take()
}

// Test is Wait without waiting: the result is false while the creation goes on.
func (r *CommRequest) Test() (*Comm, bool, error) {
	if r == nil || r.done == nil || r.used.Load() {
		return nil, false, errInactive()
	}
	if !r.ended() {
		return nil, false, nil
	}
	c, err := r.take()
	return c, true, err
}

func (r *CommRequest) take() (*Comm, error) {
	if r.used.Swap(true) {
		return nil, errInactive()
	}
	return r.comm, r.err
}
