package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// After paths between ranks have broken, communicators that are created in levels connect them again, whether they are node roots, on one
// node, or members of two nodes. A creation that uses a path before its end is noticed may fail, in all ranks.
func TestLevels_PathHasBroken_RanksReconnect(t *testing.T) {
	const rounds = 12
	for _, x := range []struct {
		name        string
		size, nodes int
		pair        []int
	}{
		{"roots", 3, 3, []int{0, 1}},
		{"one node", 4, 2, []int{2, 3}},
		{"members of two nodes", 4, 2, []int{1, 3}},
	} {
		t.Run(x.name, func(t *testing.T) {
			var ended [rounds]sync.WaitGroup
			var failed [rounds]atomic.Bool
			for i := range ended {
				ended[i].Add(x.size)
			}
			job := overPlugins(t, entry("tcp"), x.size, ",tcp", map[string]string{"btl.acme.restarts": "0", "bootstrap.roots_from": "0"})
			job.Nodes = x.nodes
			job.RunSessions(t, inWorld(func(ctx context.Context, world *mpi.Group) error {
				for round := range rounds {
					err := exchangesOn(ctx, t, world, x.pair, round)
					if err != nil && (!errors.Is(err, mpi.ErrTransport) && !errors.Is(err, mpi.ErrBroken) || round == rounds-1) {
						return fmt.Errorf("round %d: %w", round, err)
					}
					if err != nil {
						failed[round].Store(true)
					}
					ended[round].Done()
					ended[round].Wait()
					if round > 0 && !failed[round].Load() {
						return nil
					}
				}
				return nil
			}))
			if !failed[0].Load() {
				t.Error("no path has broken")
			}
		})
	}
}

// exchangesOn sends messages between a pair of ranks, and a collective, on a new communicator. In the first round the plugins are killed amid the
// messages.
func exchangesOn(ctx context.Context, t *testing.T, world *mpi.Group, pair []int, round int) error {
	c, err := mpi.CommFromGroup(ctx, world, fmt.Sprint("round ", round))
	if err != nil {
		return err
	}
	defer c.Close()
	color := mpi.Undefined
	if slices.Contains(pair, c.Rank()) {
		color = 0
	}
	d, err := c.Split(ctx, color, 0)
	if err == nil {
		defer d.Close()
		err = bounce(ctx, d, func(n int) bool {
			if n == 50 && round == 0 {
				killAll(t)
			}
			return n == 60 && round > 0
		})
	}
	switch {
	case err != nil && !errors.Is(err, mpi.ErrNoComm):
		return err
	case round == 0:
		return nil
	}
	return mpi.Barrier(ctx, c)
}
