package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// The end of a rank's nonblocking operation lets its blocking one
// go on, for which the rank's only wait is parked.
func TestThreadComm_NonblockingBesideBlocking_AllComplete(t *testing.T) {
	barrier := func(c *mpi.Comm) (mpi.Request, error) { return mpi.Ibarrier(c) }
	large := func(c *mpi.Comm) (mpi.Request, error) {
		return mpi.Iallreduce(c, make([]int64, 20_000), make([]int64, 20_000), mpi.Sum[int64]())
	}
	small := func(c *mpi.Comm) (mpi.Request, error) {
		return mpi.Iallreduce(c, make([]int64, 2), make([]int64, 2), mpi.Sum[int64]())
	}
	for i, starts := range [][]func(*mpi.Comm) (mpi.Request, error){{barrier}, {large}, {small}, {barrier, large, barrier}, {large, small, large}} {
		for _, n := range []int{2, 3, 7} {
			t.Run(fmt.Sprintf("%d operations of kind %d, %d ranks", len(starts), i, n), func(t *testing.T) {
				inThreads(t, n, func(ctx context.Context, c *mpi.Comm) error {
					for range 100 {
						var reqs []mpi.Request
						var errs error
						for _, start := range starts {
							q, err := start(c)
							reqs, errs = append(reqs, q), errors.Join(errs, err)
						}
						if err := errors.Join(errs, mpi.Barrier(ctx, c), mpi.WaitAll(ctx, reqs, nil)); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
