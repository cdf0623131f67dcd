package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

// survivors runs a program as processes, of which the last dying ones fail.
func survivors(t *testing.T, program string, size, dying int, env ...string) {
	t.Helper()
	r := localtest.RunJob(t, localtest.Job{Size: size, Program: program, MayFail: true, Env: env})
	for rank := range size {
		if failed := r.Exit[rank] != nil; failed != (rank >= size-dying) {
			t.Errorf("rank %d: %v\n%s", rank, r.Exit[rank], r.Output[rank])
		}
	}
}

var errDies = errors.New("the rank fails as it should")

// outlive lets a rank of the world die, and waits until its death is reported.
func outlive(ctx context.Context, c *mpi.Comm, rank int) error {
	if err := c.Send(ctx, nil, rank, 99); err != nil {
		return err
	}
	_, err := c.Recv(ctx, nil, rank, 98)
	return wants(fmt.Sprint("receive from rank ", rank), err, mpi.ErrProcFailed)
}

// dies is the part of a rank that fails when all of survivors have called outlive.
func dies(ctx context.Context, c *mpi.Comm, survivors ...int) error {
	for _, rank := range survivors {
		if _, err := c.Recv(ctx, nil, rank, 99); err != nil {
			return err
		}
	}
	return errDies
}

func TestFailed_MembersDie_KeepsTheOrderOfTheDeaths(t *testing.T) {
	t.Parallel()
	survivors(t, "failed", 4, 2)
}

func failedInOrder(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	color := 0
	if c.Rank() == 3 {
		color = mpi.Undefined
	}
	d, err := c.Split(ctx, color, -c.Rank())
	switch {
	case c.Rank() == 3:
		return dies(ctx, c, 0, 1)
	case err != nil:
		return err
	case c.Rank() == 2:
		return dies(ctx, c, 0, 1)
	}
	for i, rank := range []int{3, 2} {
		if err := outlive(ctx, c, rank); err != nil {
			return err
		}
		if got, want := c.Failed(), []int{3, 2}[:i+1]; !slices.Equal(got, want) {
			return fmt.Errorf("failed are %v, want %v", got, want)
		}
		if got, want := d.Failed(), make([]int, i); !slices.Equal(got, want) {
			return fmt.Errorf("failed of the part are %v, want %v", got, want)
		}
	}
	return d.Close()
}
