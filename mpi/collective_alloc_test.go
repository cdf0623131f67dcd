package mpi_test

import (
	"context"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// Programs call blocking collectives in loops, with equal arguments.
func TestCollectives_Blocking_DoNotAllocate(t *testing.T) {
	mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		ctx = context.Background()
		send, recv, one := make([]int, 12), make([]int, 24), make([]int, 4)
		counts, displs, sum := []int{2, 0, 3}, []int{7, 0, 1}, mpi.Sum[int]()
		ones, down := []int{1, 1, 1}, []int{4, 2, 0}
		var err error
		round := func() {
			for _, e := range []error{
				mpi.Barrier(ctx, c),
				mpi.Bcast(ctx, c, send, 1),
				mpi.Reduce(ctx, c, send, recv, sum, 2),
				mpi.Allreduce(ctx, c, send, recv, sum),
				mpi.Allreduce(ctx, c, nil, recv, sum),
				mpi.Scan(ctx, c, send, recv, sum),
				mpi.Exscan(ctx, c, send, recv, sum),
				mpi.ReduceScatterBlock(ctx, c, send, recv, sum),
				mpi.ReduceScatter(ctx, c, send, recv, counts, sum),
				mpi.Gather(ctx, c, one, recv, 0),
				mpi.Gatherv(ctx, c, send[:counts[c.Rank()]], recv, counts, displs, 0),
				mpi.Scatter(ctx, c, send, one, 1),
				mpi.Scatterv(ctx, c, send, counts, displs, one[:counts[c.Rank()]], 1),
				mpi.Allgather(ctx, c, one, recv),
				mpi.Allgatherv(ctx, c, send[:counts[c.Rank()]], recv, counts, displs),
				mpi.Alltoall(ctx, c, send, recv),
				mpi.Alltoall(ctx, c, nil, recv),
				mpi.Alltoallv(ctx, c, send, ones, nil, recv, ones, down),
			} {
				if e != nil {
					err = e
				}
			}
		}
		for range 50 { // Queues grow to the required size.
			round()
		}
		const rounds = 100
		if c.Rank() == 0 { // Allocations of other ranks in this process count, too.
			if n := testing.AllocsPerRun(rounds, round); n >= 1 && err == nil {
				t.Errorf("%v allocations in a round", n)
			}
			return err
		}
		for range rounds + 1 {
			round()
		}
		return err
	})
}
