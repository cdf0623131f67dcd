package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// In Open MPI, components of collectives crash after a death (open-mpi/ompi #13915), and a second Shrink hangs (#11724).
func TestShrink_TwoRanksAreKilledAtRandomMoments_OutcomesAreUniform(t *testing.T) {
	t.Parallel()
	for _, btl := range []string{"self,shm", "self,tcp"} {
		t.Run(btl, func(t *testing.T) {
			t.Parallel()
			survivors(t, "agreekilled", 5, 2, "FERRY_PML=ob1", "FERRY_BTL="+btl, fmt.Sprint(envSeed, "=", seed(t)))
		})
	}
}

// agreeKilled repeats Agree and Shrink until the failures of the two last ranks are agreed on.
func agreeKilled(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	if c.Rank() >= 3 {
		turns := 1 << seedOf(os.Getenv(envSeed)).of(c.Rank()).IntN(16)
		go func() {
			for range turns {
				runtime.Gosched()
			}
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				panic(err)
			}
		}()
	}
	outcomes := fnv.New64a()
	for i := 0; ; i++ {
		value, err := c.Agree(ctx, ^uint64(1<<c.Rank()))
		fmt.Fprintln(outcomes, value, err)
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("agree %d: %w", i, err)
		}
		d, err := c.Shrink(ctx)
		if err != nil {
			return fmt.Errorf("shrink %d: %w", i, err)
		}
		fmt.Fprintln(outcomes, d.Size(), d.ID())
		if err := mpi.Barrier(ctx, d); err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrBroken) {
			return fmt.Errorf("barrier %d: %w", i, err)
		}
		if d.Size() > 3 {
			if err := d.Close(); err != nil {
				return err
			}
			continue
		}
		failed := slices.Sorted(slices.Values(c.Failed()))
		sums := make([]uint64, d.Size())
		err = mpi.Allgather(ctx, d, []uint64{outcomes.Sum64()}, sums)
		return errors.Join(err, d.Close(),
			must(slices.Equal(failed, []int{3, 4}), "failed are %v", failed),
			must(len(slices.Compact(sums)) == 1, "the outcomes differ after %d calls", i))
	}
}
