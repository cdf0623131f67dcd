package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// failedRanks returns the ranks of an ErrProcFailed.
func failedRanks(err error) []int {
	if failed, ok := errors.AsType[*mpi.ProcFailedError](err); ok {
		return failed.Ranks
	}
	return nil
}

// awaitFailures waits until this rank has the reports of n failures. The communicator has only members that
// fail or call awaitFailures.
func awaitFailures(ctx context.Context, c *mpi.Comm, n int) error {
	for len(c.Failed()) < n {
		c.AckFailed(len(c.Failed()))
		if _, err := c.Recv(ctx, nil, mpi.AnySource, 97); !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrProcFailedPending) {
			return fmt.Errorf("receive from the dead: %w", err)
		}
	}
	return nil
}

func TestAgree_IntactCommunicator_ReturnsTheAND(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, n, func(ctx context.Context, c *mpi.Comm) error {
				for i := range 20 {
					value, err := c.Agree(ctx, ^uint64(1<<(c.Rank()+i)))
					want := ^uint64(0)
					for rank := range n {
						want &^= 1 << (rank + i)
					}
					if err != nil || value != want {
						return fmt.Errorf("agree %d: %x, %v, want %x", i, value, err, want)
					}
				}
				return mpi.Barrier(ctx, c)
			})
		})
	}
}

// In Open MPI, an Agree deadlocks if one of its layers has the report of a death and another does not (open-mpi/ompi #11261, #13501).
func TestAgree_RankDiesDuringTheCalls_IsUniform(t *testing.T) {
	for victim := range 4 {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			t.Parallel()
			const ranks = 4
			var results [ranks][]string
			mpitest.Run(t, ranks, func(ctx context.Context, c *mpi.Comm) error {
				for i := 0; ; i++ {
					if c.Rank() == victim && i == 50 {
						mpitest.Die(ctx)
					}
					value, err := c.Agree(ctx, ^uint64(1<<c.Rank()))
					results[c.Rank()] = append(results[c.Rank()], fmt.Sprint(value, err))
					if err == nil {
						continue
					}
					if !slices.Equal(failedRanks(err), []int{victim}) || !slices.Equal(c.Failed(), []int{victim}) {
						return fmt.Errorf("agree: %w, failed are %v", err, c.Failed())
					}
					break
				}
				if got := c.AckFailed(1); got != 1 {
					return fmt.Errorf("acknowledged are %d", got)
				}
				value, err := c.Agree(ctx, 7)
				return must(value == 7 && err == nil, "agree with an acknowledged failure: %d %v", value, err)
			})
			for rank := range ranks {
				if first := results[(victim+1)%ranks]; rank != victim && !slices.Equal(results[rank], first) {
					t.Errorf("rank %d: %q, rank %d: %q", rank, results[rank], (victim+1)%ranks, first)
				}
			}
		})
	}
}

func TestAgree_FailureIsAcknowledgedBySome_IsReturnedInAll(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 2 {
			mpitest.Die(ctx)
		}
		if err := awaitFailures(ctx, c, 1); err != nil {
			return err
		}
		if c.Rank() == 1 {
			c.AckFailed(1)
		}
		value, err := c.Agree(ctx, uint64(2|c.Rank()))
		return must(value == 2 && slices.Equal(failedRanks(err), []int{2}), "agree: %d %v", value, err)
	})
}

func TestAgree_AllOthersDie_ReturnsTheirRanks(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() != 2 {
			mpitest.Die(ctx)
		}
		value, err := c.Agree(ctx, 5)
		for err == nil || len(failedRanks(err)) < 3 {
			value, err = c.Agree(ctx, 5)
		}
		return must(value == 5 && slices.Equal(failedRanks(err), []int{0, 1, 3}), "agree: %d %v", value, err)
	})
}

func TestAgree_CollectivesAreBroken_Works(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	t.Parallel()
	mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			if err := wants("barrier", mpi.Barrier(over, c), mpi.ErrCanceled); err != nil {
				return err
			}
		} else if err := wants("barrier", mpi.Barrier(ctx, c), mpi.ErrBroken); err != nil {
			return err
		}
		for range 5 {
			value, err := c.Agree(ctx, uint64(4|c.Rank()))
			if value != 4 || err != nil {
				return fmt.Errorf("agree: %d %w", value, err)
			}
		}
		return nil
	})
}

func TestAgree_ContextEnds_FlagsCount(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for victim := range 3 {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == victim {
					if _, err := c.Agree(over, 6); !errors.Is(err, mpi.ErrCanceled) {
						return fmt.Errorf("agree: %w", err)
					}
				} else if value, err := c.Agree(ctx, 12); value != 4 || err != nil {
					return fmt.Errorf("agree: %d %w", value, err)
				}
				value, err := c.Agree(ctx, 8) // After the first one.
				if value != 8 || err != nil {
					return fmt.Errorf("second agree: %d %w", value, err)
				}
				return wants("barrier", mpi.Barrier(ctx, c), mpi.ErrBroken)
			})
		})
	}
}

func TestAgree_AnotherGoroutineIsInACall_ReturnsErrPending(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 1); err != nil {
				return err
			}
			_, err := c.Agree(ctx, 1)
			return err
		}
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.Agree(ctx, 1)
				errs <- err
			}()
		}
		pending := <-errs // The other one waits for rank 1.
		err := c.Send(ctx, nil, 1, 1)
		return errors.Join(err, wants("second agree", pending, mpi.ErrPending), <-errs)
	})
}

func TestAgree_OthersCallShrink_ReturnsErrorInAll(t *testing.T) {
	t.Parallel()
	var texts [3]atomic.Value
	mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		var err error
		if c.Rank() == 1 {
			_, err = c.Shrink(ctx)
		} else {
			_, err = c.Agree(ctx, 1)
		}
		if err == nil {
			return errors.New("both calls succeed")
		}
		texts[c.Rank()].Store(err.Error())
		value, err := c.Agree(ctx, 3)
		return must(value == 3 && err == nil, "agree: %d %v", value, err)
	})
	for rank := range texts {
		if text, _ := texts[rank].Load().(string); !containsAll(text, "Agree (rank ", "Shrink (rank 1)") {
			t.Errorf("rank %d: %q", rank, text)
		}
	}
}

// The members do not depend on repeated notes, whether the communicator is closed before or during their calls.
func TestAgreeAndShrink_MemberHasClosedTheCommunicator_IsNotWaitedFor(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *mpi.Comm) error{
		"agree": func(ctx context.Context, c *mpi.Comm) error {
			value, err := c.Agree(ctx, uint64(8|c.Rank()))
			return errors.Join(err, must(value&8 != 0, "agree: %d", value))
		},
		"shrink": func(ctx context.Context, c *mpi.Comm) error {
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			return errors.Join(d.Close(), must(d.Size() == c.Size()-1, "shrink: %d members", d.Size()))
		},
	}
	for name, call := range calls {
		for victim := range 3 {
			for _, isLate := range []bool{false, true} {
				t.Run(fmt.Sprint(name, victim, isLate), func(t *testing.T) {
					t.Parallel()
					mpitest.Run(t, 3, func(ctx context.Context, world *mpi.Comm) error {
						c, err := world.Dup(ctx)
						if err != nil {
							return err
						}
						defer c.Close()
						mpi.RepeatNoNotes(c)
						if c.Rank() != victim {
							err = call(ctx, c)
						} else {
							for isLate && ctx.Err() == nil && !mpi.IsAwaited(c) {
								runtime.Gosched()
							}
							err = c.Close()
						}
						return errors.Join(err, mpi.Barrier(ctx, world))
					})
				})
			}
		}
	}
}

func TestAgree_MemberHasClosedItsSession_IsNotWaitedFor(t *testing.T) {
	for victim := range 3 {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == victim {
					return nil
				}
				for range 3 {
					if value, err := c.Agree(ctx, uint64(8|c.Rank())); err != nil || value&8 == 0 {
						return fmt.Errorf("agree: %d %w", value, err)
					}
				}
				return nil
			})
		})
	}
}

func TestAgree_CommunicatorIsClosed_ReturnsErrClosed(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 2, func(ctx context.Context, world *mpi.Comm) error {
		over, cancel := context.WithCancel(ctx)
		cancel()
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if c.Rank() == 0 {
			_ = mpi.Barrier(over, c) // So that Agree uses notes.
			errs := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := c.Agree(ctx, 1)
					errs <- err
				}()
			}
			err = wants("second agree", <-errs, mpi.ErrPending) // The other call is in progress.
			err = errors.Join(err, c.Close(), wants("agree during Close", <-errs, mpi.ErrClosed))
			_, after := c.Agree(ctx, 1)
			err = errors.Join(err, wants("agree after Close", after, mpi.ErrClosed))
		}
		return errors.Join(err, mpi.Barrier(ctx, world))
	})
}

// The flags of each call count in its own instance, so that the members stay in step.
func TestAgree_ContextsOfSeveralCallsEnd_AllFlagsCount(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 0 {
			for i := range 3 {
				if _, err := c.Agree(over, ^uint64(1<<i)); !errors.Is(err, mpi.ErrCanceled) {
					return fmt.Errorf("agree %d: %w", i, err)
				}
			}
			if _, err := c.Shrink(over); !errors.Is(err, mpi.ErrCanceled) {
				return fmt.Errorf("shrink: %w", err)
			}
		} else {
			for i := range 3 {
				if value, err := c.Agree(ctx, ^uint64(0)); value != ^uint64(1<<i) || err != nil {
					return fmt.Errorf("agree %d: %x %w", i, value, err)
				}
			}
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(isWhole(ctx, d, 1, 2), d.Close()); err != nil {
				return err
			}
		}
		value, err := c.Agree(ctx, 7)
		return errors.Join(err, must(value == 7, "the last value is %d", value))
	})
}
