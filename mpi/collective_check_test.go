package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// With coll.check, all members return the error, in blocking and nonblocking forms. Their collectives still work.
func TestCollCheck_CallsDiffer_AllReturnError(t *testing.T) {
	one, two := []int{1}, []int{1, 2}
	request := func(q mpi.Request, err error) error {
		if err == nil {
			_, err = q.Wait(context.Background())
		}
		return err
	}
	cases := map[string]struct {
		calls func(ctx context.Context, c *mpi.Comm, odd bool) error
		want  []string
	}{
		"length": {func(ctx context.Context, c *mpi.Comm, odd bool) error {
			if odd {
				return mpi.Bcast(ctx, c, make([]int, 2), 0)
			}
			return mpi.Bcast(ctx, c, make([]int, 1), 0)
		}, []string{`rank 2: "bcast of 16 bytes, root 0, by `, `ranks 0, 1, 3, 4: "bcast of 8 bytes`}},
		"root": {func(ctx context.Context, c *mpi.Comm, odd bool) error {
			if odd {
				return request(mpi.Igather(c, one, make([]int, 5), 3))
			}
			return request(mpi.Igather(c, one, make([]int, 5), 1))
		}, []string{`rank 2: "gather of 8 bytes, root 3`, `root 1, by`}},
		"operation": {func(ctx context.Context, c *mpi.Comm, odd bool) error {
			if odd {
				return mpi.Allreduce(ctx, c, one, []int{0}, mpi.Max[int]())
			}
			return mpi.Allreduce(ctx, c, one, []int{0}, mpi.Sum[int]())
		}, []string{`max of elements of 8 bytes`, `sum of elements`}},
		"collective": {func(ctx context.Context, c *mpi.Comm, odd bool) error {
			if odd {
				return request(mpi.Ibarrier(c))
			}
			return request(mpi.Ialltoall(c, make([]int, 5), make([]int, 5)))
		}, []string{`rank 2: "barrier, by`, `"alltoall of 8 bytes`}},
		"blocks": {func(ctx context.Context, c *mpi.Comm, odd bool) error {
			counts, mine := []int{1, 2, 2, 1, 1}, two
			if odd {
				counts = []int{2, 1, 2, 1, 1}
			}
			if c.Rank() == 0 || c.Rank() > 2 {
				mine = one
			}
			return mpi.Allgatherv(ctx, c, mine, make([]int, 7), counts, nil)
		}, []string{`rank 2: "allgatherv of 56 bytes in blocks `}},
		"initialization": {func(ctx context.Context, c *mpi.Comm, odd bool) error {
			if odd {
				return mpi.Barrier(ctx, c)
			}
			p, err := mpi.BcastInit(ctx, c, one, 0)
			if err == nil {
				err = p.Free()
			}
			return err
		}, []string{`rank 2: "barrier, by`, `"persistent bcast of 8 bytes, root 0`}},
	}
	job := mpitest.Job{Size: 5, Params: map[string]string{"coll.check": "true"}}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
				for _, odd := range []int{-1, 2, -1, 2, -1} {
					err := x.calls(ctx, c, c.Rank() == odd)
					if odd < 0 && err != nil {
						return err
					}
					for _, want := range x.want {
						if odd >= 0 && (err == nil || errors.Is(err, mpi.ErrBroken) || !strings.Contains(err.Error(), want)) {
							return fmt.Errorf("%w; want %s", err, want)
						}
					}
				}
				return mpi.Barrier(ctx, c)
			})
		})
	}
}
