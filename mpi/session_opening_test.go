package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/hier"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/pml"
)

// traffic counts the collective messages that a process sends.
type traffic struct {
	mu    sync.Mutex
	sizes []int64
}

func (x *traffic) Event(e pml.Event) {
	if e.Kind != pml.EventSend || e.Plane != pml.Collective {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sizes = append(x.sizes, e.Bytes)
}

// take returns the sizes of the messages since the last call.
func (x *traffic) take() []int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	sizes := x.sizes
	x.sizes = nil
	return sizes
}

// opening returns the messages that open instances on c, those of the second barrier without those of the third.
func (x *traffic) opening(ctx context.Context, c *mpi.Comm) (sizes []int64, err error) {
	if err := mpi.Barrier(ctx, c); err != nil {
		return nil, err
	}
	x.take()
	if err := mpi.Barrier(ctx, c); err != nil {
		return nil, err
	}
	second := x.take()
	if err := mpi.Barrier(ctx, c); err != nil {
		return nil, err
	}
	third := x.take()
	if len(second) < len(third) || !slices.Equal(second[len(second)-len(third):], third) {
		return nil, fmt.Errorf("the second barrier sends %v, the third %v", second, third)
	}
	return second[:len(second)-len(third)], nil
}

// Compares the sizes of all messages of a rank that opens an instance. A record has 68 bytes, and a
// verdict 16. The first rank of a node exchanges verdicts with the other nodes.
func TestOpening_Processes_SendsCardsOnTheNodeOnly(t *testing.T) {
	for name, x := range map[string]struct {
		size, nodes int
		// Key of the split.
		order func(rank int) int
		// By rank; nil of those that are not listed.
		want map[int][]int64
	}{
		"one node": {4, 1, nil, map[int][]int64{0: {68, 136, 16, 16}, 1: {68, 136, 16, 16}, 2: {68, 136, 16, 16}, 3: {68, 136, 16, 16}}},
		"two nodes": {8, 2, nil, map[int][]int64{
			0: {68, 136, 16, 16, 16, 16, 16}, 1: {68, 136, 16, 16}, 2: {68, 136, 16, 16, 16}, 3: {68, 136, 16, 16},
			4: {68, 136, 16, 16, 16, 16, 16}, 5: {68, 136, 16, 16}, 6: {68, 136, 16, 16, 16}, 7: {68, 136, 16, 16},
		}},
		"uneven nodes": {5, 3, nil, map[int][]int64{0: {68, 16, 16, 16, 16}, 1: {68, 16}, 2: {68, 16, 16, 16, 16}, 3: {68, 16}, 4: {16, 16}}},
		"descending ranks": {5, 2, func(rank int) int { return -rank }, map[int][]int64{
			0: {68, 16, 16, 16}, 1: {68, 16}, 2: {68, 68, 16, 16, 16, 16, 16}, 3: {68, 68, 16, 16}, 4: {68, 68, 16, 16},
		}},
		"rounds": {4, 2, func(rank int) int { return rank % 2 }, map[int][]int64{0: {68, 16, 16, 16}, 1: {68, 16, 16, 16}, 2: {68, 16}, 3: {68, 16}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counts := make([]traffic, x.size)
			mpitest.Job{Size: x.size, Nodes: x.nodes, Options: func(rank int) []mpi.SessionOption {
				return []mpi.SessionOption{mpi.WithHooks(&counts[rank])}
			}}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
				key := world.Rank()
				if x.order != nil {
					key = x.order(world.Rank())
				}
				c, err := world.Split(ctx, 0, key)
				if err != nil {
					return err
				}
				sizes, err := counts[world.Rank()].opening(ctx, c)
				if err == nil {
					err = must(slices.Equal(sizes, x.want[c.Rank()]), "rank %d sends messages of %v bytes, want %v", c.Rank(), sizes, x.want[c.Rank()])
				}
				return errors.Join(err, mpi.Barrier(ctx, world), c.Close())
			})
		})
	}
}

// Cards stay in the process. Two components open instances here, each with two messages
// among three processes.
func TestOpening_GoroutineRanks_OneVerdictForEachProcess(t *testing.T) {
	counts := make([]traffic, 3)
	mpitest.Job{Size: 3, Nodes: 2, Options: func(rank int) []mpi.SessionOption {
		return []mpi.SessionOption{mpi.WithHooks(&counts[rank])}
	}}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
		tc, err := mpi.NewThreadComm(ctx, world, 4)
		if err != nil {
			return err
		}
		counts[world.Rank()].take()
		err = tc.Run(ctx, func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) })
		sizes := counts[world.Rank()].take()
		sizes = slices.DeleteFunc(sizes, func(n int64) bool { return n == 0 }) // Of the barrier.
		if err == nil {
			err = must(slices.Equal(sizes, []int64{16, 16, 16, 16}), "the process sends messages of %v bytes", sizes)
		}
		return errors.Join(err, tc.Close())
	})
}

// unable is a component that a rank cannot open, or with other terms in a rank.
type unable struct {
	coll.Component
	opens func(rank int) bool
	// Its terms are others.
	differs bool
}

func (u unable) Info() framework.Info {
	info := u.Component.Info()
	info.Name, info.Priority = "unable", 60
	return info
}

var errUnable = errors.New("no room for a part")

func (u unable) Query(params any, shape coll.Shape) *coll.Offer {
	o := u.Component.Query(params, shape)
	if o == nil {
		return nil
	}
	open := o.Open
	o.Open = func(env coll.Env) (coll.Instance, error) {
		if !u.opens(env.Rank) {
			return nil, errUnable
		}
		return open(env)
	}
	if u.differs {
		o.Priority++
	}
	return o
}

// Members of all nodes name it.
func TestOpening_MemberFails_AllDoWithoutAndNameIt(t *testing.T) {
	always := func(int) bool { return true }
	for name, x := range map[string]struct {
		opens func(rank int) bool
		// Ranks with another priority.
		differ func(rank int) bool
		want   string
	}{
		"one cannot open":         {func(rank int) bool { return rank != 4 }, nil, "rank 4 could not open its part"},
		"several cannot open":     {func(rank int) bool { return rank%3 != 1 }, nil, "rank 1 could not open its part"},
		"terms differ on a node":  {always, func(rank int) bool { return rank == 3 }, "values of coll.unable's parameters"},
		"terms differ among them": {always, func(rank int) bool { return rank > 2 }, "values of coll.unable's parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logs := make([]lockedBuffer, 6)
			mpitest.Job{Size: 6, Nodes: 2, Options: func(rank int) []mpi.SessionOption {
				u := unable{Component: hier.Component(), opens: x.opens}
				u.differs = x.differ != nil && x.differ(rank)
				reg := components.Standard()
				reg.Register(u)
				return []mpi.SessionOption{mpi.WithRegistry(reg), mpi.WithLogger(slog.New(slog.NewTextHandler(&logs[rank], nil)))}
			}}.Run(t, gathers)
			for rank := range logs {
				log := logs[rank].String()
				if !strings.Contains(log, x.want) && !(strings.Contains(log, errUnable.Error()) && !x.opens(rank)) {
					t.Errorf("rank %d logs %s", rank, log)
				}
			}
		})
	}
}

// First ranks of nodes and others leave in place of the collective that opens instances.
func TestOpening_MemberLeaves_AllOthersFail(t *testing.T) {
	mpitest.Job{Size: 6, Nodes: 2}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for _, leaver := range []int{0, 1, 3, 5} {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			// The leaver breaks c after all have left its first collective.
			if err := errors.Join(mpi.Barrier(ctx, c), mpi.Barrier(ctx, world)); err != nil {
				return err
			}
			if c.Rank() == leaver {
				err = wants("the barrier of the leaver", mpi.Barrier(ended, c), mpi.ErrCanceled)
			} else {
				err = wants("a barrier", mpi.Barrier(ctx, c), mpi.ErrBroken)
			}
			if err := errors.Join(err, mpi.Barrier(ctx, world), c.Close()); err != nil {
				return fmt.Errorf("rank %d leaves: %w", leaver, err)
			}
		}
		return nil
	})
}
