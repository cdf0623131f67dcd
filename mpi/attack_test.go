package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// The caller's block for itself ends within another
// member's block, or behind the slice.
func TestAttack_AlltoallvOwnBlockTooLong_ReturnsErrTruncate(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		send := []int{10, 11, 12}
		sendCounts := []int{1, 1}
		sendCounts[c.Rank()] = 3
		for _, own := range []int{0, 3} {
			displs := []int{3 - own, 3 - own}
			displs[c.Rank()] = own
			recv := []int{0, 999, 999, 0}
			err := mpi.Alltoallv(ctx, c, send, sendCounts, []int{0, 0}, recv, []int{1, 1}, displs)
			if !errors.Is(err, mpi.ErrTruncate) {
				return fmt.Errorf("own block at %d: %v", own, err)
			}
			if _, err := mpi.Ialltoallv(c, send, sendCounts, []int{0, 0}, recv, []int{1, 1}, displs); !errors.Is(err, mpi.ErrTruncate) {
				return fmt.Errorf("own block at %d, nonblocking: %v", own, err)
			}
			if !slices.Equal(recv, []int{0, 999, 999, 0}) {
				return fmt.Errorf("own block at %d: recv is %v", own, recv)
			}
		}
		return nil
	})
}
