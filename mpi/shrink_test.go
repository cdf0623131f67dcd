package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

// isWhole checks that all members of a communicator can use it, and that they are these ranks of the job.
func isWhole(ctx context.Context, c *mpi.Comm, ranks ...int) error {
	var members []int
	for _, p := range c.Group().Members() {
		members = append(members, int(p.Rank))
	}
	if !slices.Equal(members, ranks) {
		return fmt.Errorf("members are %v, want %v", members, ranks)
	}
	sum := make([]int, 1)
	if err := mpi.Allreduce(ctx, c, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	n := c.Size()
	next, before := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	_, err := c.Sendrecv(ctx, nil, next, 1, nil, before, 1)
	return errors.Join(err, must(sum[0] == n*(n-1)/2, "the sum is %d", sum[0]))
}

// In Open MPI, a second Shrink hangs (open-mpi/ompi #11724).
func TestShrink_IntactCommunicator_AHundredTimes(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
		for range 100 {
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if d.Compare(c) != mpi.Congruent {
				return fmt.Errorf("the result is %v to its parent", d.Compare(c))
			}
			if err := errors.Join(isWhole(ctx, d, 0, 1, 2, 3), d.Close()); err != nil {
				return err
			}
		}
		return mpi.Barrier(ctx, c)
	})
}

func TestShrink_RanksDie_UntilOneIsLeft(t *testing.T) {
	t.Parallel()
	const ranks = 8
	mpitest.Run(t, ranks, func(ctx context.Context, world *mpi.Comm) error {
		c := world
		left := []int{0, 1, 2, 3, 4, 5, 6, 7}
		for _, victim := range []int{0, 7, 3, 1, 6, 5, 2} {
			dead := slices.Index(left, victim)
			left = slices.Delete(left, dead, dead+1)
			if world.Rank() == victim { // The others are no longer in isWhole.
				for range left {
					if _, err := c.Recv(ctx, nil, mpi.AnySource, 99); err != nil {
						return err
					}
				}
				mpitest.Die(ctx)
			}
			if err := c.Send(ctx, nil, dead, 99); err != nil {
				return err
			}
			if _, err := c.Recv(ctx, nil, dead, 3); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("receive from rank %d: %w", dead, err)
			}
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			defer d.Close()
			if err := isWhole(ctx, d, left...); err != nil {
				return fmt.Errorf("after the death of rank %d: %w", victim, err)
			}
			c = d
		}
		return nil
	})
}

func TestShrink_TwoRanksDieAtOnce_CreatesOneCommunicator(t *testing.T) {
	for _, victims := range [][]int{{0, 1}, {0, 4}, {2, 3}} {
		t.Run(fmt.Sprint(victims), func(t *testing.T) {
			t.Parallel()
			const ranks = 5
			var ids [ranks]mpi.CommID
			mpitest.Run(t, ranks, func(ctx context.Context, c *mpi.Comm) error {
				if slices.Contains(victims, c.Rank()) {
					mpitest.Die(ctx)
				}
				d, err := shrinkTo(ctx, c, ranks-len(victims))
				if err != nil {
					return err
				}
				defer d.Close()
				ids[c.Rank()] = d.ID()
				left := []int{0, 1, 2, 3, 4}
				return isWhole(ctx, d, slices.DeleteFunc(left, func(r int) bool { return slices.Contains(victims, r) })...)
			})
			left := slices.DeleteFunc(ids[:], func(id mpi.CommID) bool { return id == mpi.CommID{} })
			if len(slices.Compact(left)) != 1 {
				t.Errorf("the ids are %v", ids)
			}
		})
	}
}

// shrinkTo shrinks c until a communicator has size members. Failures may be reported between two calls.
func shrinkTo(ctx context.Context, c *mpi.Comm, size int) (*mpi.Comm, error) {
	for {
		d, err := c.Shrink(ctx)
		if err != nil || d.Size() == size {
			return d, err
		}
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
}

func TestShrink_ContextEnds_MemberIsExcluded(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for victim := range 3 {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == victim {
					_, err := c.Shrink(over)
					return errors.Join(wants("shrink", err, mpi.ErrCanceled), mpi.Barrier(ctx, c))
				}
				d, err := c.Shrink(ctx)
				if err != nil {
					return err
				}
				defer d.Close()
				left := slices.Delete([]int{0, 1, 2}, victim, victim+1)
				return errors.Join(isWhole(ctx, d, left...), mpi.Barrier(ctx, c))
			})
		})
	}
}

func TestShrink_MemberHasClosedItsSession_IsExcluded(t *testing.T) {
	for victim := range 3 {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == victim {
					return nil
				}
				d, err := c.Shrink(ctx)
				if err != nil {
					return err
				}
				defer d.Close()
				return isWhole(ctx, d, slices.Delete([]int{0, 1, 2}, victim, victim+1)...)
			})
		})
	}
}

func TestShrink_RevokedCommunicator_AHundredTimes(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 3}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if c.Rank() == 1 {
			err = c.Revoke()
		} else {
			err = wants("barrier", mpi.Barrier(ctx, c), mpi.ErrRevoked)
		}
		if err != nil {
			return err
		}
		for range 100 {
			value, err := c.Agree(ctx, 3)
			if value != 3 || err != nil {
				return fmt.Errorf("agree: %d %w", value, err)
			}
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(isWhole(ctx, d, 0, 1, 2), d.Close()); err != nil {
				return err
			}
		}
		return mpi.Barrier(ctx, world)
	})
}

func TestShrink_ProcessOfSeveralRanksDies_ExcludesAllOfThem(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 3, Goroutines: 2}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		switch c.Rank() {
		case 2:
			mpitest.Die(ctx)
		case 3:
			<-ctx.Done()
			return ctx.Err()
		}
		if _, err := c.Recv(ctx, nil, 3, 1); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("receive from rank 3: %w", err)
		}
		value, err := c.Agree(ctx, ^uint64(1<<c.Rank()))
		if value != ^uint64(1<<0|1<<1|1<<4|1<<5) || !slices.Equal(failedRanks(err), []int{2, 3}) {
			return fmt.Errorf("agree: %x %w", value, err)
		}
		for range 10 {
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(isWhole(ctx, d, 0, 0, 2, 2), d.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestShrink_GoroutineRanksOfOneProcess_CreatesACommunicator(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 1, Goroutines: 5}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		for i := range 20 {
			value, err := c.Agree(ctx, ^uint64(1<<c.Rank()))
			if value != ^uint64(31) || err != nil {
				return fmt.Errorf("agree %d: %x %w", i, value, err)
			}
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(isWhole(ctx, d, 0, 0, 0, 0, 0), d.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// A path that is broken between two live processes would outlive every Shrink.
func TestShrink_MembersAreDisconnected_ConnectAgain(t *testing.T) {
	t.Parallel()
	withEvents(t, mpitest.Job{Size: 3}, func(ctx context.Context, c *mpi.Comm, client *injector) error {
		if err := isWhole(ctx, c, 0, 1, 2); err != nil {
			return err
		}
		if c.Rank() == 1 {
			first := c.Group().Members()[0]
			client.event(bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: first, Reason: "test"})
			if _, err := c.Recv(ctx, nil, 0, 5); !errors.Is(err, mpi.ErrTransport) {
				return fmt.Errorf("receive from rank 0: %w", err)
			}
		}
		d, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		defer d.Close()
		return isWhole(ctx, d, 0, 1, 2)
	})
}

// wiresUp runs a program with rank 1 disconnected from rank 0, so that Shrink wires up again.
func wiresUp(t *testing.T, program func(ctx context.Context, c *mpi.Comm, client *injector) error) {
	t.Helper()
	withEvents(t, mpitest.Job{Size: 4}, func(ctx context.Context, c *mpi.Comm, client *injector) error {
		if err := isWhole(ctx, c, 0, 1, 2, 3); err != nil {
			return err
		}
		if c.Rank() == 1 {
			first := c.Group().Members()[0]
			client.event(bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: first, Reason: "test"})
			if _, err := c.Recv(ctx, nil, 0, 5); !errors.Is(err, mpi.ErrTransport) {
				return fmt.Errorf("receive from rank 0: %w", err)
			}
		}
		return program(ctx, c, client)
	})
}

// endsLater is a context that ends in the first call of Err after it is armed.
type endsLater struct {
	context.Context
	isArmed atomic.Bool
	ended   chan struct{}
	end     sync.Once
}

func (c *endsLater) Done() <-chan struct{} { return c.ended }

func (c *endsLater) Err() error {
	if !c.isArmed.Load() {
		return nil
	}
	c.end.Do(func() { close(c.ended) })
	return context.Canceled
}

func TestShrink_ContextEndsAfterTheWireUp_MemberIsExcluded(t *testing.T) {
	for victim := range 4 {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			t.Parallel()
			wiresUp(t, func(ctx context.Context, c *mpi.Comm, client *injector) error {
				if c.Rank() == victim {
					ending := &endsLater{Context: ctx, ended: make(chan struct{})}
					client.constructed = func(string) { ending.isArmed.Store(true) }
					_, err := c.Shrink(ending)
					client.constructed = nil
					_, agreed := c.Agree(ctx, 0)
					return errors.Join(wants("shrink", err, context.Canceled), agreed)
				}
				d, err := c.Shrink(ctx)
				if err != nil {
					return err
				}
				err = isWhole(ctx, d, slices.Delete([]int{0, 1, 2, 3}, victim, victim+1)...)
				_, agreed := c.Agree(ctx, 0)
				return errors.Join(err, d.Close(), agreed)
			})
		})
	}
}

func TestShrink_ContextsEndWhileTheResultIsConfirmed_ResultsAreUniform(t *testing.T) {
	t.Parallel()
	k := seed(t)
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			wiresUp(t, func(ctx context.Context, c *mpi.Comm, client *injector) error {
				random := k.of(4*round + c.Rank())
				ending, cancel := context.WithCancel(ctx)
				defer cancel()
				if random.IntN(2) == 0 {
					end := func() {}
					defer func() { end() }()
					client.constructed = func(tag string) {
						if strings.HasPrefix(tag, "reconnect") { // The last construct.
							var soonEnds context.Context
							soonEnds, end = soon(ctx, random)
							context.AfterFunc(soonEnds, cancel)
						}
					}
				}
				d, err := c.Shrink(ending)
				client.constructed = nil
				if err == nil {
					defer d.Close()
				}
				err = usesResult(ctx, d, err)
				// The next calls are in order.
				e, shrunk := c.Shrink(ctx)
				value, agreed := c.Agree(ctx, 3)
				if err := errors.Join(err, shrunk, agreed, must(value == 3, "the value is %d", value)); err != nil {
					return err
				}
				return errors.Join(isWhole(ctx, e, 0, 1, 2, 3), e.Close())
			})
		})
	}
}

// usesResult checks the result of a Shrink with a context that may have ended. It is a communicator with a working barrier, or ErrCanceled.
func usesResult(ctx context.Context, d *mpi.Comm, err error) error {
	if errors.Is(err, mpi.ErrCanceled) {
		return nil
	}
	if err != nil {
		return err
	}
	// A member that was included too late has refused the communicator.
	if err = mpi.Barrier(ctx, d); errors.Is(err, mpi.ErrBroken) || errors.Is(err, framework.ErrNotMember) {
		return nil
	}
	return err
}

// Each member ends its context at a random moment. Then the results are the same in all members that have one, and a member
// that is left out has an error.
func TestShrink_ContextsEndAtRandomMoments_ResultsAreUniform(t *testing.T) {
	t.Parallel()
	k := seed(t)
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
				ending, end := soon(ctx, k.of(3*round+c.Rank()))
				defer end()
				d, err := c.Shrink(ending)
				if err == nil {
					defer d.Close()
				}
				err = usesResult(ctx, d, err)
				// The next calls are in order.
				value, agreed := c.Agree(ctx, 3)
				e, shrunk := c.Shrink(ctx)
				if err := errors.Join(err, agreed, shrunk, must(value == 3, "the value is %d", value)); err != nil {
					return err
				}
				return errors.Join(isWhole(ctx, e, 0, 1, 2), e.Close())
			})
		})
	}
}

// A member that has refused a communicator is not waited for.
func TestShrink_MemberHasRefusedTheCommunicator_IsExcluded(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	mpitest.Run(t, 3, func(ctx context.Context, world *mpi.Comm) error {
		parent, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		defer parent.Close()
		if world.Rank() == 0 {
			_, err := parent.Dup(over)
			return errors.Join(wants("dup", err, mpi.ErrCanceled), mpi.Barrier(ctx, world))
		}
		c, err := parent.Dup(ctx)
		if errors.Is(err, mpi.ErrBroken) { // It was notified before.
			return mpi.Barrier(ctx, world)
		} else if err != nil {
			return err
		}
		defer c.Close()
		d, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		for _, p := range d.Group().Members() {
			if p.Rank == 0 {
				err = errors.New("rank 0 is a member")
			}
		}
		return errors.Join(err, d.Close(), mpi.Barrier(ctx, world))
	})
}

// The outcome is decided at once, and excludes the caller.
func TestShrink_ContextOfTheOnlyMemberHasEnded_ReturnsItsError(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	mpitest.Run(t, 1, func(ctx context.Context, c *mpi.Comm) error {
		_, excluded := c.Shrink(over)
		d, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		return errors.Join(wants("shrink", excluded, mpi.ErrCanceled), isWhole(ctx, d, 0), d.Close())
	})
}
