package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/internal/mem"
)

// All members of a communicator call collective operations in the same order, with matching
// arguments. An invalid argument is an error of that member alone, returned before anything is sent.
// The other members still wait for it.
//
// A collective that fails halfway breaks the communicator's collectives, because members have
// different views of its completion. Reasons are the end of its context, a panic of an operation
// (Op), and other failures. All later collectives return ErrBroken, including the creation of
// communicators. The other members are notified, so that theirs end with ErrBroken and the name of
// that member. Point-to-point messages still work. Package coll/run carries the operations out.

// Barrier returns when all members have called it (MPI_Barrier).
func Barrier(ctx context.Context, c *Comm) error {
	return c.collective.Run(ctx, &run.Call{Op: coll.Barrier}, nil)
}

// Bcast sends root's buf to all others' buf (MPI_Bcast), which has the same
// length.
func Bcast[T any](ctx context.Context, c *Comm, buf []T, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, bcast(&x, c, buf, root))
}

func bcast[T any](x *run.Call, c *Comm, buf []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.Op, x.Out = coll.Bcast, mem.Bytes(buf)
	x.Args.Root, x.Args.Size = root, len(x.Out)
	return nil
}

func (c *Comm) checkRoot(root int) error {
	if c.isClosed() {
		return c.errClosed()
	}
	if root < 0 || root >= c.size {
		return fmt.Errorf("root: %w", c.errRank(root))
	}
	return nil
}

// errShort is the error of a buffer that is too short.
func errShort(what string, has, needs int) error {
	return fmt.Errorf("%w: %s has %d elements, and needs %d", ErrTruncate, what, has, needs)
}

// times is n blocks of count elements, or the largest int if that is none.
func times(n, count int) int {
	if count > math.MaxInt/n {
		return math.MaxInt
	}
	return n * count
}

// start starts a nonblocking collective, unless wrong has the error of its arguments.
func (c *Comm) start(x *run.Call, wrong error) (Request, error) {
	if wrong != nil {
		return Request{}, wrong
	}
	keepLayouts(x)
	return c.startIn(nil, x)
}

// startIn is start in a kept operation (run.State.Start).
func (c *Comm) startIn(kept *run.Operation, x *run.Call) (Request, error) {
	h, err := c.collective.Start(kept, x)
	if err != nil {
		if why := c.terminalError(); why != nil && errors.Is(err, why) {
			return c.startFailed(why), nil
		}
		return Request{}, err
	}
	return requestOf(h), nil
}

// keepLayouts copies the layouts of a call, which are the caller's again when a nonblocking call
// returns.
func keepLayouts(x *run.Call) {
	if p, ok := x.Packing.(*packing); ok {
		p.keep()
	}
}

// requestOf returns the request of a started operation.
func requestOf(h run.Handle) Request { return Request{h.Request, h.Generation} }
