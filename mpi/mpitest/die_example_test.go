package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// addSurvivors adds up a one of each rank. It continues without ranks that die.
func addSurvivors(ctx context.Context, c *mpi.Comm) (int, error) {
	sum := make([]int, 1)
	err := mpi.Allreduce(ctx, c, []int{1}, sum, mpi.Sum[int]())
	if err == nil || !errors.Is(err, mpi.ErrProcFailed) {
		return sum[0], err
	}
	survivors, err := c.Shrink(ctx)
	if err != nil {
		return 0, err
	}
	defer survivors.Close()
	return addSurvivors(ctx, survivors)
}

// A test of addSurvivors. Rank 2 of 4 dies before the others call it.
func ExampleDie() {
	test := func(t *testing.T) {
		mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
			if c.Rank() == 2 {
				mpitest.Die(ctx)
			}
			sum, err := addSurvivors(ctx, c)
			if err == nil && sum != 3 {
				err = fmt.Errorf("the sum is %d, want 3", sum)
			}
			return err
		})
	}
	exampleOfDie = test // TestDie_Example_Passes runs it.
}

// exampleOfDie is the test of ExampleDie.
var exampleOfDie func(*testing.T)
