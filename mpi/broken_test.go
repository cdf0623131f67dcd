package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// TestCollectiveThatBreaksInOneMemberEndsInAll: nobody has died, and most have nothing to
// do with the one in which it breaks but that they wait for somebody who waits for it.
func TestCollectiveThatBreaksInOneMemberEndsInAll(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	allreduce := func(ctx context.Context, c *mpi.Comm, op mpi.Op[int]) error {
		return mpi.Allreduce(ctx, c, []int{1}, make([]int, 1), op)
	}
	breaks := map[string]func(c *mpi.Comm) error{
		"context": func(c *mpi.Comm) error { return mpi.Barrier(over, c) },
		"panic": func(c *mpi.Comm) (err error) {
			defer func() { err = fmt.Errorf("%w: %v", mpi.ErrBroken, recover()) }()
			return allreduce(t.Context(), c, mpi.NewOp(func(_, _ []int) { panic("enough") }, true))
		},
		"creation": func(c *mpi.Comm) error {
			_, err := c.CreateGroup(over, c.Group(), 1)
			return err
		},
	}
	for name, breaks := range breaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mpitest.Job{Size: 5}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				switch {
				case c.Rank() == 2:
					err = breaks(c)
				case name == "panic":
					if err = allreduce(ctx, c, mpi.Sum[int]()); err == nil { // what rank 2 had sent was all that it took
						err = mpi.Barrier(ctx, c)
					}
				default:
					err = mpi.Barrier(ctx, c)
				}
				switch {
				case c.Rank() == 2:
					if err == nil {
						return errors.New("it didn't break")
					}
				case !errors.Is(err, mpi.ErrBroken) || !strings.Contains(err.Error(), "rank 2"):
					return fmt.Errorf("waiting for the others: %v, want that rank 2 takes part in none", err)
				}
				return mpi.Barrier(ctx, world) // another communicator is whole
			})
		})
	}
}

// TestMemberWhoseDupFailedIsNotWaitedFor: the others have the communicator, because it
// takes no message to make it.
func TestMemberWhoseDupFailedIsNotWaitedFor(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	waits := map[string]func(ctx context.Context, c *mpi.Comm) error{
		"recv":  func(ctx context.Context, c *mpi.Comm) error { _, err := c.Recv(ctx, nil, 1, 0); return err },
		"any":   func(ctx context.Context, c *mpi.Comm) error { _, err := c.Recv(ctx, nil, mpi.AnySource, 0); return err },
		"probe": func(ctx context.Context, c *mpi.Comm) error { _, err := c.Probe(ctx, 1, 0); return err },
		"ssend": func(ctx context.Context, c *mpi.Comm) error { return c.Ssend(ctx, nil, 1, 0) },
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mpitest.Job{Size: 3}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
				parent, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				defer parent.Close()
				if world.Rank() == 1 {
					_, err := parent.Dup(over)
					if err := wants("a dup in a context that has ended", err, mpi.ErrCanceled); err != nil {
						return err
					}
					return mpi.Barrier(ctx, world)
				}
				d, err := parent.Dup(ctx)
				if err != nil {
					return err
				}
				defer d.Close()
				if err := wants("waiting for it", wait(ctx, d), framework.ErrNotMember); err != nil {
					return err
				}
				return mpi.Barrier(ctx, world)
			})
		})
	}
}

// TestCreateGroupEndsInAllIfItsFirstMemberCannotMakeIt: it tells the others, who wait for
// nobody else.
func TestCreateGroupEndsInAllIfItsFirstMemberCannotMakeIt(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, reason := range []string{"its context has ended", "its collectives are broken"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			mpitest.Job{Size: 3}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				if c.Rank() != 0 {
					_, err = c.CreateGroup(ctx, c.Group(), 1)
					return wants("create group", err, mpi.ErrBroken)
				}
				if reason == "its context has ended" {
					_, err = c.CreateGroup(over, c.Group(), 1)
					return wants("create group", err, mpi.ErrCanceled)
				}
				alone, err := c.Group().Incl(0)
				if err != nil {
					return err
				}
				_, broken := c.CreateGroup(over, alone, 2)
				_, err = c.CreateGroup(ctx, c.Group(), 1)
				return errors.Join(wants("create group", broken, mpi.ErrCanceled), wants("create group", err, mpi.ErrBroken))
			})
		})
	}
}
