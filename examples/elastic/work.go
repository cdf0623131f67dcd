package main

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

// work adds up a number of each member, and passes a token of each member round the ring. It
// checks the results.
func work(ctx context.Context, comm *mpi.Comm, round int64) error {
	rank, size := int64(comm.Rank()), int64(comm.Size())
	mine := (rank + 1) * (round + 1)
	want := size * (size + 1) / 2 * (round + 1)
	sum := make([]int64, 1)
	if err := mpi.Allreduce(ctx, comm, []int64{mine}, sum, mpi.Sum[int64]()); err != nil {
		return err
	}
	if sum[0] != want {
		return fmt.Errorf("round %d: the sum of %d members is %d, want %d", round, size, sum[0], want)
	}

	next, previous := int((rank+1)%size), int((rank+size-1)%size)
	token, received, total := []int64{mine}, make([]int64, 1), int64(0)
	for range size {
		if _, err := mpi.Sendrecv(ctx, comm, token, next, 0, received, previous, 0); err != nil {
			return err
		}
		token, received = received, token
		total += token[0]
	}
	if token[0] != mine || total != want {
		return fmt.Errorf("round %d: %d tokens add up to %d, want %d, and the last one is %d, want %d", round, size, total, want, token[0], mine)
	}
	return nil
}
