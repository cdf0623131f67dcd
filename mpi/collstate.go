package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/pml"
)

// collective is the state of a communicator's collective operations. One is in
// progress at a time; Idup, which may overlap with others, keeps to its own part
// of it.
type collective struct {
	busy   atomic.Bool
	broken atomic.Pointer[error] // why no further one can work
	idups  atomic.Int32          // in progress

	// Guarded by busy.
	children cid.Deriver  // idup's while that is in progress
	unborn   cid.Span     // ids that were not given out when the operation began
	idup     *CommRequest // the last one that may not be complete, or nil
	peers    peers
	ops      *coll.Ops // what components offer here, once that was asked
}

func (k *collective) init(c *Comm) {
	k.children = cid.NewDeriver(c.spec.ID)
	k.peers.c = c
}

// comm is the communicator that k is part of.
func (k *collective) comm() *Comm { return k.peers.c }

// lastIdup returns the idup that the next creation comes after, which keeps it from
// now on, or nil. Inside do.
func (k *collective) lastIdup() *CommRequest {
	last := k.idup
	k.idup = nil
	return last
}

// errPanicked is what is known of a collective that did not return.
var errPanicked = errors.New("an operation or hook of the program panicked in it")

// do makes one collective call, which is f. An error means that members don't agree
// any more on what has happened, so that further ones are refused. So does a panic,
// which goes on to the caller: f calls functions of the program (Op, KeyHooks).
func (k *collective) do(ctx context.Context, op string, f func() error) error {
	if err := k.enter(ctx); err != nil {
		return err
	}
	panicked := true
	defer func() {
		if panicked {
			k.fail(fmt.Errorf("%s: %w", op, errPanicked)) // it may have been under the engine's lock: breaks would wait for that
		}
		k.busy.Store(false)
	}()
	err := f()
	if err != nil && !errors.Is(err, ErrNoComm) {
		err = k.breaks(ended(ctx, op, err))
	}
	panicked = false
	return err
}

// enter begins a collective, unless it fails.
func (k *collective) enter(ctx context.Context) error {
	c := k.comm()
	if c.closed.Load() {
		return c.errClosed()
	}
	if !k.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: another goroutine is in a collective operation of this communicator; use one communicator for each (Dup)", ErrPending)
	}
	err := k.works()
	if k.unborn = (cid.Span{}); k.idups.Load() == 0 { // otherwise one of those may be made yet
		k.unborn = k.children.Unborn()
	}
	if err == nil && over(ctx) {
		err = k.breaks(ended(ctx, "collective", context.Cause(ctx)))
	}
	if err != nil {
		k.busy.Store(false)
	}
	return err
}

// works returns ErrBroken if an earlier collective has failed.
func (k *collective) works() error {
	if earlier := k.broken.Load(); earlier != nil {
		return fmt.Errorf("%w: an earlier one failed: %w", ErrBroken, *earlier)
	}
	return nil
}

// breaks is fail for who has entered. This member will be in no communicator that others
// may have made in the operation, and tells those who wait for it there: Split succeeds
// in one member and fails in another when a third one dies.
func (k *collective) breaks(err error) error {
	k.comm().module.Refuse(k.unborn)
	return k.fail(err)
}

// fail has all further collectives of this member refused, and tells the others, who
// would wait for it. A death they hear of by themselves, and what they were told they know.
func (k *collective) fail(err error) error {
	if k.broken.CompareAndSwap(nil, &err) && !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrBroken) {
		c := k.comm()
		c.session.engine.Broke(c.spec.ID, err)
	}
	return err
}

// brokenBy ends a communicator's collectives, because a member takes part in none any
// more. What has arrived for those that come is received.
func (c *Comm) brokenBy(p Proc, reason string) {
	who := p.String()
	if rank := slices.Index(c.group.procs(), p); rank >= 0 {
		who = fmt.Sprintf("rank %d", rank)
	}
	c.pml.Abort(pml.Collective, fmt.Errorf("%w: %s takes part in none any more: %s", ErrBroken, who, reason))
}
