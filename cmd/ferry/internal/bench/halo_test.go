package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// With 2 and 3 ranks, neighbors on both sides are one rank, or the rank itself.
func TestHalo_IsendIrecv_MovesTheBlocksOfNeighborAlltoall(t *testing.T) {
	const size = 3
	for _, ranks := range []int{1, 2, 3, 6, 9} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			mpitest.Run(t, ranks, func(ctx context.Context, c *mpi.Comm) (err error) {
				grid, err := newHalo(ctx, c)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, grid.Comm().Close()) }()
				send := make([]byte, haloNeighbors*size)
				for i := range send {
					send[i] = byte(100*c.Rank() + i)
				}
				got, want := make([]byte, len(send)), make([]byte, len(send))
				exchange, err := separateHalo(ctx, grid, send, got)
				if err != nil {
					return err
				}
				if err := errors.Join(exchange(), mpi.NeighborAlltoall(ctx, grid.Comm(), send, want)); err != nil {
					return err
				}
				if !bytes.Equal(got, want) {
					return fmt.Errorf("received %v, want %v", got, want)
				}
				return nil
			})
		})
	}
}
