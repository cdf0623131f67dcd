package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// No process has failed. Most members wait for others and do not exchange messages with the member in which the collective fails.
func TestCollective_FailsInOneMember_EndsInAll(t *testing.T) {
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
					if err = allreduce(ctx, c, mpi.Sum[int]()); err == nil { // The message of rank 2 was sufficient.
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
					return fmt.Errorf("waiting for the others: %v, want that rank 2 no longer takes part", err)
				}
				return mpi.Barrier(ctx, world) // another communicator is whole
			})
		})
	}
}

// A creation fails in one member and succeeds in the others, for each kind of creation.
func TestCreation_MemberHasNoNewComm_IsNotWaitedFor(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	key := mpi.NewKey(mpi.KeyHooks[int]{Copy: func(int) (int, bool) { panic("enough") }})
	dup := func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.Dup(ctx) }
	idup := func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) {
		r, err := c.Idup()
		if err != nil {
			return nil, err
		}
		return r.Wait(ctx)
	}
	all := func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.CreateGroup(ctx, c.Group(), 1) }
	two := func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { // the groups of 0 and 1 don't fit
		g, err := c.Group().Incl(0, 1)
		switch {
		case err != nil:
			return nil, err
		case c.Rank() == 1:
			g = c.Group()
		case c.Rank() == 2:
			g, err = g.Incl()
		}
		d, created := c.Create(ctx, g)
		if errors.Is(created, mpi.ErrNoComm) {
			created = nil
		}
		return d, errors.Join(err, created)
	}
	type create = func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error)
	within := func(ctx context.Context, make create) create {
		return func(_ context.Context, c *mpi.Comm) (*mpi.Comm, error) { return make(ctx, c) }
	}
	panics := func(make create) create {
		return func(ctx context.Context, c *mpi.Comm) (_ *mpi.Comm, err error) {
			defer func() { err = fmt.Errorf("%v", recover()) }()
			if err := mpi.SetAttr(c, key, 1); err != nil {
				return nil, err
			}
			return make(ctx, c)
		}
	}
	for name, way := range map[string]struct{ fails, make create }{
		"dup":                  {within(over, dup), dup},
		"dup, a hook panics":   {panics(dup), dup},
		"idup, a hook panics":  {panics(idup), idup},
		"create group":         {within(over, all), all},
		"create, other groups": {two, two},
		"create group, broken": {func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) {
			return nil, errors.Join(mpi.Barrier(over, c), func() error { _, err := all(ctx, c); return err }())
		}, all},
	} {
		for op, wait := range map[string]func(ctx context.Context, c *mpi.Comm) error{
			"recv":    func(ctx context.Context, c *mpi.Comm) error { _, err := c.Recv(ctx, nil, 1, 0); return err },
			"any":     func(ctx context.Context, c *mpi.Comm) error { _, err := c.Recv(ctx, nil, mpi.AnySource, 0); return err },
			"probe":   func(ctx context.Context, c *mpi.Comm) error { _, err := c.Probe(ctx, 1, 0); return err },
			"ssend":   func(ctx context.Context, c *mpi.Comm) error { return c.Ssend(ctx, nil, 1, 0) },
			"large":   func(ctx context.Context, c *mpi.Comm) error { return c.Send(ctx, make([]byte, 4<<20), 1, 0) },
			"barrier": func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) },
		} {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				mpitest.Job{Size: 3}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
					parent, err := world.Dup(ctx)
					if err != nil {
						return err
					}
					defer parent.Close()
					if world.Rank() == 1 {
						if _, err := way.fails(ctx, parent); err == nil {
							return errors.New("it is made here")
						}
						return mpi.Barrier(ctx, world)
					}
					d, err := way.make(ctx, parent)
					if d != nil {
						defer d.Close()
						err = wait(ctx, d)
						if !errors.Is(err, mpi.ErrBroken) && !errors.Is(err, framework.ErrNotMember) {
							return fmt.Errorf("waiting for it: %w", err)
						}
					} else if err != nil && !errors.Is(err, mpi.ErrBroken) { // It was notified.
						return err
					}
					return mpi.Barrier(ctx, world)
				})
			})
		}
	}
}

// A member is notified of the failure before it creates the communicator, which another member has created before.
func TestCreation_MemberNotifiedBefore_IsNotWaitedFor(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, end := range map[string]func(ctx context.Context, c *mpi.Comm) error{
		"dup": func(ctx context.Context, c *mpi.Comm) error {
			_, err := c.Dup(ctx)
			return wants("dup", err, mpi.ErrBroken)
		},
		"close": func(_ context.Context, c *mpi.Comm) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mpitest.Job{Size: 3}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				switch c.Rank() {
				case 0:
					var d *mpi.Comm
					if d, err = c.Dup(ctx); err != nil {
						return err
					}
					defer d.Close()
					err = world.Send(ctx, nil, 1, 0)
					_, waited := d.Recv(ctx, nil, 2, 0)
					err = errors.Join(err, wants("recv", waited, framework.ErrNotMember))
				case 1:
					_, err = world.Recv(ctx, nil, 0, 0)
					err = errors.Join(err, wants("barrier", mpi.Barrier(over, c), mpi.ErrCanceled))
				case 2:
					for !mpi.IsBroken(c) {
						if time.Sleep(time.Millisecond); ctx.Err() != nil {
							return errors.New("it never hears")
						}
					}
					err = end(ctx, c)
				}
				return errors.Join(err, mpi.Barrier(ctx, world))
			})
		})
	}
}

// The first member takes part in no further operation.
func TestCreateGroup_FirstMemberNeverCalls_Ends(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	mpitest.Job{Size: 3}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if c.Rank() == 0 {
			err = wants("barrier", mpi.Barrier(over, c), mpi.ErrCanceled)
		} else {
			_, err = c.CreateGroup(ctx, c.Group(), 1)
			err = wants("create group", err, mpi.ErrBroken)
		}
		return errors.Join(err, mpi.Barrier(ctx, world))
	})
}

// The first member notifies the others, which wait for no other member.
func TestCreateGroup_FirstMemberFails_EndsInAll(t *testing.T) {
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
