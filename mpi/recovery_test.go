package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// creations create a communicator of all members of c.
var creations = map[string]func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error){
	"Dup":    func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.Dup(ctx) },
	"Split":  func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.Split(ctx, 0, 0) },
	"Create": func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.Create(ctx, c.Group()) },
	"CreateGroup": func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) {
		return c.CreateGroup(ctx, c.Group(), 1)
	},
	"CommFromGroup": func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) {
		return mpi.CommFromGroup(ctx, c.Group(), "again")
	},
}

// In Open MPI, the creation of a communicator hangs if a member dies (open-mpi/ompi #11153).
func TestCreation_MemberDies_EndsAndWorksAfterShrink(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(creations)) {
		for victim := range 3 {
			t.Run(fmt.Sprint(name, victim), func(t *testing.T) {
				t.Parallel()
				mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
					if c.Rank() == victim {
						mpitest.Die(ctx)
					}
					half, err := creations[name](ctx, c)
					if err == nil { // Some creations wait for no member.
						err = errors.Join(mpi.Barrier(ctx, half), half.Close())
					}
					if !errors.Is(err, mpi.ErrProcFailed) {
						return fmt.Errorf("without rank %d: %w", victim, err)
					}
					survivors, err := shrinkTo(ctx, c, 3)
					if err != nil {
						return err
					}
					d, err := creations[name](ctx, survivors)
					if err != nil {
						return err
					}
					return errors.Join(mpi.Barrier(ctx, d), d.Close(), survivors.Close())
				})
			})
		}
	}
}

// recoveries are the calls of the survivors before they close their sessions.
var recoveries = map[string]func(ctx context.Context, c *mpi.Comm) error{
	"none": func(ctx context.Context, c *mpi.Comm) error { return nil },
	"pending operations": func(ctx context.Context, c *mpi.Comm) error {
		for rank := range c.Size() {
			send, err := c.Isend(make([]byte, 1<<20), rank, 1)
			if err != nil {
				return err
			}
			receive, err := c.Irecv(make([]byte, 1<<20), rank, 2)
			if err := errors.Join(err, send.Free(), receive.Free()); err != nil {
				return err
			}
		}
		return nil
	},
	"Revoke": func(_ context.Context, c *mpi.Comm) error { return c.Revoke() },
	"Agree": func(ctx context.Context, c *mpi.Comm) error {
		value, err := c.Agree(ctx, 1)
		return errors.Join(wants("agree", err, mpi.ErrProcFailed), must(value == 1, "value %d", value))
	},
	"Shrink": func(ctx context.Context, c *mpi.Comm) error {
		d, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		return errors.Join(mpi.Barrier(ctx, d), d.Close())
	},
}

// In Open MPI, Finalize hangs after a death (open-mpi/ompi #11404).
func TestSessionClose_MemberHasDied_Ends(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(recoveries)) {
		for victim := range 3 {
			t.Run(fmt.Sprint(name, " ", victim), func(t *testing.T) {
				t.Parallel()
				mpitest.Job{Size: 3}.RunSessions(t, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
					if c.Rank() == victim {
						mpitest.Die(ctx)
					}
					_, err := c.Recv(ctx, nil, victim, 97)
					if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) { // Another member may have revoked it first.
						return fmt.Errorf("receive from the dead: %w", err)
					}
					return recoveries[name](ctx, c)
				}))
			})
		}
	}
}
