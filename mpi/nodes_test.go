package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// Ranks with segments in different directories are on different nodes. Those on one node share memory. No component is omitted for any placement.
func TestCollectives_SeveralNodes_MatchReference(t *testing.T) {
	for name, nodes := range map[string][]int{"one": {0, 0, 0, 0}, "blocks": {0, 0, 0, 1, 1}, "in turns": {0, 1, 0, 1, 2}, "apart": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
			mpitest.Job{
				Size: len(nodes),
				Options: func(rank int) []mpi.SessionOption {
					return []mpi.SessionOption{mpi.WithParam("btl.shm.dir", dirs[nodes[rank]]), mpi.WithParam("btl.shm.fallback_dir", "")}
				},
			}.RunSessions(t, func(ctx context.Context) error {
				s, err := mpitest.Open(ctx)
				if err != nil {
					return err
				}
				g, err := s.Group(ctx, bootstrap.PsetWorld)
				if err != nil {
					return err
				}
				c, err := mpi.CommFromGroup(ctx, g, "nodes")
				if err != nil {
					return err
				}
				half, err := c.Split(ctx, c.Rank()%2, -c.Rank())
				if err != nil {
					return err
				}
				for _, x := range []*mpi.Comm{c, half} {
					for range 2 {
						if err := errors.Join(collectives(ctx, s, x), gathers(ctx, x)); err != nil {
							return err
						}
					}
				}
				x, err := s.Explain(ctx)
				if err != nil {
					return err
				}
				for _, v := range x.Components {
					if strings.Contains(v.Reason, "left out") {
						return fmt.Errorf("%s %s: %s", v.Framework, v.Name, v.Reason)
					}
				}
				return errors.Join(half.Close(), c.Close(), s.Close())
			})
		})
	}
}

// The members share memory.
func TestNonblocking_LengthsDiffer_ReturnError(t *testing.T) {
	mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		calls := map[string]func(d *mpi.Comm) error{
			"bcast":     func(d *mpi.Comm) error { return mpi.Bcast(ctx, d, make([]byte, 5+d.Rank()), 0) },
			"allreduce": func(d *mpi.Comm) error { return mpi.Allreduce(ctx, d, nil, make([]int, 5+d.Rank()), mpi.Sum[int]()) },
			"roots":     func(d *mpi.Comm) error { return mpi.Bcast(ctx, d, make([]byte, 5), d.Rank()/2) },
			"operations": func(d *mpi.Comm) error {
				if d.Rank() == 0 {
					return mpi.Barrier(ctx, d)
				}
				return mpi.Allreduce(ctx, d, nil, make([]int, 1), mpi.Sum[int]())
			},
		}
		for _, name := range slices.Sorted(maps.Keys(calls)) { // One order in all ranks.
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			for range 2 { // from the second one on there is memory
				if err := mpi.Barrier(ctx, d); err != nil {
					return err
				}
			}
			// No member is in a barrier of d when another one finds the difference.
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			err = calls[name](d) // of who sees it; where the root does not, it has sent, and comes back
			for i := 0; err == nil && i < 10; i++ {
				err = mpi.Barrier(ctx, d)
			}
			if err == nil {
				return fmt.Errorf("%s: no error", name)
			}
			if err := errors.Join(mpi.Barrier(ctx, c), d.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}
