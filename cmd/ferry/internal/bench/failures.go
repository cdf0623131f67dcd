package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

// Benchmarks of the calls that survive process failures.

// recoverRanks is the number of ranks of recover without -n.
const recoverRanks = 4

// elasticShrink is the benchmark of the name shrink with the flags of a job that changes.
var elasticShrink = benchmark{
	name: "shrink", isOfProcesses: true, isElastic: true,
	osuTitle: "shrink test: remove processes from a job", osuNote: "# [ remaining ranks: %d ]", columnHeads: elasticColumns,
}

// agree times (*Comm).Agree on a communicator without failures, with the loop of collectives.
func (r *rank) agree(ctx context.Context, _ int) (Row, error) {
	return r.together(ctx, 0, 1, 100,
		func(int) error {
			flags, err := r.comm.Agree(ctx, math.MaxUint64)
			if err == nil && flags != math.MaxUint64 {
				err = fmt.Errorf("agree: %#x: want all bits", flags)
			}
			return err
		},
		func() error { return mpi.Barrier(ctx, r.comm) })
}

// shrink times (*Comm).Shrink of a duplicate that rank 0 has revoked.
func (r *rank) shrink(ctx context.Context, _ int) (Row, error) {
	revoked, err := r.revoked(ctx)
	if err != nil {
		return Row{}, err
	}
	var shrunk *mpi.Comm
	row, err := r.together(ctx, 0, 1, 100,
		func(int) (err error) { shrunk, err = revoked.Shrink(ctx); return err },
		func() (err error) {
			if err = errors.Join(shrunk.Close(), revoked.Close()); err == nil {
				revoked, err = r.revoked(ctx)
			}
			return err
		})
	if err != nil {
		return Row{}, err
	}
	return row, revoked.Close()
}

// revoked returns a duplicate of the communicator that rank 0 has revoked.
func (r *rank) revoked(ctx context.Context) (*mpi.Comm, error) {
	c, err := r.comm.Dup(ctx)
	if err == nil && c.Rank() == 0 {
		err = c.Revoke()
	}
	if err != nil {
		return nil, err
	}
	return c, mpi.Barrier(ctx, r.comm)
}

// killAndRecover is a rank of recover. Rank 0 kills the last rank. The rank 0 of the survivors prints the
// nanoseconds from then until the last survivor has left its first barrier on the shrunk communicator.
func killAndRecover(ctx context.Context, c *mpi.Comm, out io.Writer) error {
	const tag = 1
	last, victim := c.Size()-1, []int64{int64(os.Getpid())}
	var err error
	switch c.Rank() {
	case last:
		err = mpi.Send(ctx, c, victim, 0, tag)
	case 0:
		_, err = mpi.Recv(ctx, c, victim, last, tag)
	}
	if err != nil {
		return err
	}
	err = mpi.Barrier(ctx, c) // The victim may die before others have left it.
	start := machineClock()
	switch c.Rank() {
	case last:
		<-ctx.Done() // It is killed.
		return context.Cause(ctx)
	case 0:
		if err = errors.Join(err, syscall.Kill(int(victim[0]), syscall.SIGKILL)); err != nil {
			return err
		}
	}
	if err == nil {
		err = mpi.Barrier(ctx, c)
	}
	if !isFailure(err) {
		return fmt.Errorf("barrier after a failure: got %v, want an error of the failure", err)
	}
	if err := c.Revoke(); err != nil {
		return err
	}
	survivors, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	if err := mpi.Barrier(ctx, survivors); err != nil {
		return err
	}
	end := []int64{machineClock()}
	if err := mpi.Allreduce(ctx, survivors, nil, end, mpi.Max[int64]()); err != nil {
		return err
	}
	if survivors.Rank() == 0 {
		fmt.Fprintln(out, end[0]-start)
	}
	return survivors.Close()
}

// isFailure reports whether a failure has ended a collective of this rank.
func isFailure(err error) bool {
	return errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrRevoked) || errors.Is(err, mpi.ErrBroken)
}

// machineClock returns the nanoseconds of a clock that all processes of the machine have in common.
func machineClock() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // It fails only for an unknown clock.
	return t.Nano()
}
