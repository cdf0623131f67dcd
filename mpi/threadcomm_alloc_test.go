package mpi_test

import (
	"context"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// TestThreadComm_BlockingMessages_AllocateNothing between two goroutine ranks, in the cells and as pooled copies.
func TestThreadComm_BlockingMessages_AllocateNothing(t *testing.T) {
	const rounds = 500
	inThreads(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		ctx = context.Background()
		peer := 1 - c.Rank()
		for _, size := range []int{8, 1 << 10} {
			send, recv := make([]byte, size), make([]byte, size)
			var err error
			step := func() {
				first, second := func() error { return c.Send(ctx, send, peer, 1) }, func() error { _, err := c.Recv(ctx, recv, peer, 1); return err }
				if c.Rank() == 1 {
					first, second = second, first
				}
				if err == nil {
					err = first()
				}
				if err == nil {
					err = second()
				}
			}
			for range rounds { // Pools fill, queues grow.
				step()
			}
			if c.Rank() == 1 { // The measurement counts the allocations of all goroutines.
				for range rounds + 1 {
					step()
				}
			} else if n := testing.AllocsPerRun(rounds, step); n > 0 && !underRace {
				t.Errorf("%d bytes: %v allocations per round trip", size, n)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
