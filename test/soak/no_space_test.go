package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// runWithoutSpace runs four ranks on two nodes. The directory of ranks 0 and 1 has no space beyond their
// inboxes and rings.
func runWithoutSpace(t *testing.T, dirs []string) {
	mpitest.Job{
		Size:   4,
		Params: map[string]string{"btl.shm.fallback_dir": "", "btl.shm.ring_size": "64KiB"},
		Options: func(rank int) []mpi.SessionOption {
			return []mpi.SessionOption{mpi.WithParam("btl.shm.dir", dirs[rank/2])}
		},
	}.RunSessions(t, func(ctx context.Context) error {
		s, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		c, err := newWorldComm(ctx, s, "roomless")
		if err != nil {
			return err
		}
		half, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		for _, x := range []*mpi.Comm{c, half} {
			for i := range 20 {
				sum := []int{i + x.Rank()}
				if err := errors.Join(mpi.Barrier(ctx, x), mpi.Allreduce(ctx, x, nil, sum, mpi.Sum[int]())); err != nil {
					return err
				}
				if want := i*x.Size() + x.Size()*(x.Size()-1)/2; sum[0] != want {
					return fmt.Errorf("the sum of %d ranks is %d, want %d", x.Size(), sum[0], want)
				}
			}
		}
		return errors.Join(checkExplain(ctx, s, c.Rank()), half.Close(), c.Close(), s.Close())
	})
}

// checkExplain checks the components that explain lists.
func checkExplain(ctx context.Context, s *mpi.Session, rank int) error {
	x, err := s.Explain(ctx)
	if err != nil {
		return err
	}
	for _, v := range x.Components {
		if v.Framework != "coll" || v.Name != "hier" && v.Name != "shm" {
			continue
		}
		// No rank has hier. The node without space lacks shm.
		out := strings.Contains(v.Reason, "not used on one communicator")
		if want := v.Name == "hier" || rank < 2; out != want {
			return fmt.Errorf("coll %s: %s", v.Name, v.Reason)
		}
	}
	return nil
}
