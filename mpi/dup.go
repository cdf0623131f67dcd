package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/pml"
)

// Dup creates a communicator with the same members and topology, in a separate communication context (MPI_Comm_dup). It copies the attributes whose
// keys have a Copy hook. It is collective, but sends no message and does not block. A member may send on the new communicator before others have
// called Dup. As an exception, members synchronize once in 65535 creations from one communicator to obtain new ids.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	var ids []cid.Extended
	err := c.collective.Do(ctx, "dup", 0, func() (err error) {
		ids, err = c.derive(ctx, c.takeLastDup(), 1)
		return err
	})
	if err != nil {
		return nil, err
	}
	copied := false
	defer func() {
		if !copied { // A hook has panicked, and other members have the duplicate.
			c.refuse(ids[0], c.group, fmt.Errorf("dup: %w", run.ErrPanicked))
		}
	}()
	attrs := c.copyAttrs() // First, so that a panic of a hook leaves no duplicate.
	copied = true
	d, err := c.same(ids[0])
	if err != nil {
		deleteAttrs(attrs)
		return nil, err
	}
	d.attrs = attrs
	return d, nil
}

// dup creates a communicator with c's members, after the creation before, which may be
// nil.
func (c *Comm) dup(ctx context.Context, before *CommRequest) (*Comm, error) {
	ids, err := c.derive(ctx, before, 1)
	if err != nil {
		return nil, err
	}
	return c.same(ids[0])
}

// same is a child with c's members and topology.
func (c *Comm) same(id cid.Extended) (*Comm, error) {
	d, err := c.child(c.group, pml.CommSpec{ID: id, Members: c.spec.Members, Rank: c.rank})
	if err == nil {
		d.topology = c.topology
	}
	return d, err
}

// child is newComm below c.
func (c *Comm) child(g *Group, spec pml.CommSpec) (*Comm, error) {
	return newComm(c.session, c.threadRank, g, c.module, spec, c.paramValues)
}

// derive returns the ids of the next n children, equal in all members. They follow those of the creation before, if it is not nil. When the base is
// used up, all members obtain a new one.
func (c *Comm) derive(ctx context.Context, before *CommRequest, n int) ([]cid.Extended, error) {
	ctx = background(ctx)
	if before != nil {
		if err := before.await(ctx); err != nil {
			return nil, err
		}
	}
	d := &c.collective.Children
	ids := make([]cid.Extended, 0, n)
	for {
		some, err := d.Next(min(n-len(ids), d.Remaining()))
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
		if len(ids) == n {
			return ids, nil
		}
		ctx, stop := c.collective.ContextUntilBroken(ctx)
		defer stop()
		base, err := c.construct(ctx, c.rebaseCount)
		if err != nil {
			return nil, err
		}
		d.Rebase(base)
		c.rebaseCount++
	}
}

// takeLastDup returns the Idup that precedes the next creation, or nil. The creation becomes its owner. Called inside State.Do.
func (c *Comm) takeLastDup() *CommRequest {
	last := c.lastDup
	c.lastDup = nil
	return last
}

// CommRequest is the creation of a communicator in progress. It must not be copied. Wait, or a Test that returns true, returns the communicator once.
// After that the request is inactive.
type CommRequest struct {
	// Closed at the end of the creation.
	done       chan struct{}
	comm       *Comm
	err        error
	isConsumed atomic.Bool
}

// Idup starts a Dup (MPI_Comm_idup). Other operations of the communicator may be
// called before it is complete. Attributes are copied now. Session.Close is
// ErrPending until the new communicator has been taken and closed.
func (c *Comm) Idup() (*CommRequest, error) {
	r := &CommRequest{done: make(chan struct{})}
	err := c.collective.Do(nil, "idup", 0, func() error { return c.startIdup(r) })
	if err == nil {
		return r, nil
	}
	if why := c.terminalError(); why != nil && errors.Is(err, why) {
		r.err = why
		close(r.done)
		return r, nil
	}
	return nil, err
}

// startIdup begins the creation that is r. Called inside State.Do.
func (c *Comm) startIdup(r *CommRequest) error {
	attrs := c.copyAttrs() // First, because a hook may panic.
	if err := c.session.hold(&c.session.commCount); err != nil {
		deleteAttrs(attrs)
		return err
	}
	before := c.takeLastDup()
	c.lastDup = r
	c.collective.BeginDup()
	if (before == nil || before.ended()) && c.collective.Children.Remaining() > 0 {
		c.finishIdup(before, r, attrs) // The usual case. It needs no other member.
	} else {
		go c.finishIdup(before, r, attrs)
	}
	return nil
}

// finishIdup creates the communicator after the one before. Deriving has a
// deadline (bootstrap.timeout), so that it ends.
func (c *Comm) finishIdup(before, r *CommRequest, attrs []attribute) {
	defer close(r.done)
	defer c.session.drop(&c.session.commCount)
	defer c.collective.EndDup()
	r.comm, r.err = c.dup(context.Background(), before)
	if r.err != nil {
		r.err = c.collective.Fail(fmt.Errorf("idup: %w", r.err))
		c.collective.Abort(r.err)
		deleteAttrs(attrs)
	} else {
		r.comm.attrs = attrs
	}
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
	if r == nil || r.done == nil {
		return nil, errInactive()
	}
	if err := r.await(background(ctx)); err != nil && !r.ended() {
		return nil, ended(ctx, "wait", err)
	}
	return r.take()
}

// Test is Wait without blocking. It returns false while the creation is in progress.
func (r *CommRequest) Test() (*Comm, bool, error) {
	if r == nil || r.done == nil || r.isConsumed.Load() {
		return nil, false, errInactive()
	}
	if !r.ended() {
		return nil, false, nil
	}
	c, err := r.take()
	return c, true, err
}

func (r *CommRequest) take() (*Comm, error) {
	if r.isConsumed.Swap(true) {
		return nil, errInactive()
	}
	return r.comm, r.err
}
