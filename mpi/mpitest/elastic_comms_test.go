package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// Rank 0 grows the job twice, so that the main set has members of three mpi://WORLDs.
var threeWorlds = []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 2}, 3}, {mpi.PsetGrow, mpi.PsetArgs{Add: 2}, 5}}

// grown returns the program of ranks that run f when the communicator of the main set has n ranks.
func grown(n int, steps []step, f func(ctx context.Context, m *member) error) func(context.Context) error {
	return func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err
		}
		left := steps
		for m.c.Size() < n {
			var next *step
			if m.rank == 0 {
				next, left = &left[0], left[1:]
			}
			if isMember, err := m.change(ctx, next); !isMember || err != nil {
				return err
			}
		}
		if err := f(ctx, m); err != nil {
			return fmt.Errorf("rank %d: %w", m.rank, err)
		}
		return m.run(ctx, left)
	}
}

func TestComm_OfGrownSet_MakesOthers(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 1, MaxRanks: 5}, grown(5, threeWorlds, func(ctx context.Context, m *member) error {
		dup, err := m.c.Dup(ctx)
		if err != nil {
			return err
		}
		if got := dup.Compare(m.c); got != mpi.Congruent {
			return fmt.Errorf("a dup compares as %v", got)
		}
		half, err := dup.Split(ctx, m.c.Rank()%2, -m.c.Rank())
		if err != nil {
			return err
		}
		if want := []int{3, 2}[m.c.Rank()%2]; half.Size() != want {
			return fmt.Errorf("split: %d ranks, want %d", half.Size(), want)
		}
		shared, err := dup.SplitShared(ctx, 0)
		if err != nil {
			return err
		}
		if shared.Size() != 5 {
			return fmt.Errorf("SplitShared: %d ranks", shared.Size())
		}
		g, err := m.c.Group().Incl(4, 1)
		if err != nil {
			return err
		}
		pair, err := dup.Create(ctx, g)
		if g.Rank() == mpi.Undefined {
			if !errors.Is(err, mpi.ErrNoComm) {
				return fmt.Errorf("create: %w", err)
			}
		} else {
			if err != nil {
				return err
			}
			again, err := dup.CreateGroup(ctx, g, 3)
			if err != nil {
				return err
			}
			if err := errors.Join(talk(ctx, pair), talk(ctx, again), pair.Close(), again.Close()); err != nil {
				return err
			}
		}
		tc, err := mpi.NewThreadComm(ctx, dup, 2)
		if err != nil {
			return err
		}
		if err := tc.Run(ctx, talk); err != nil {
			return err
		}
		return errors.Join(tc.Close(), talk(ctx, dup), talk(ctx, half), talk(ctx, shared), dup.Close(), half.Close(), shared.Close())
	}))
}

func TestSession_OfAddedRank_HasItsOwnWorld(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 1, MaxRanks: 5}, grown(5, threeWorlds, func(ctx context.Context, m *member) error {
		first, size := 0, 1
		if m.rank > 0 {
			first, size = (m.rank-1)/2*2+1, 2
		}
		for _, pset := range []string{"mpi://WORLD", "mpix://SHARED"} {
			g, err := m.s.Group(ctx, pset)
			if err != nil {
				return err
			}
			if g.Size() != size || g.Rank() != m.rank-first || int(g.Members()[0].Rank) != first {
				return fmt.Errorf("%s has %v, and this is rank %d", pset, g.Members(), g.Rank())
			}
			c, err := mpi.CommFromGroup(ctx, g, "own "+pset)
			if err != nil {
				return err
			}
			if err := errors.Join(talk(ctx, c), c.Close()); err != nil {
				return err
			}
		}
		main, err := m.s.PsetInfo(ctx, m.main)
		if err != nil || main.Size != 5 || !main.Included || !main.Dynamic {
			return fmt.Errorf("the main set is %+v, %w", main, err)
		}
		names, err := m.s.Psets(ctx)
		if err != nil || !slices.Contains(names, m.main) {
			return fmt.Errorf("sets: %q, %w", names, err)
		}
		return statsAndQueues(ctx, m)
	}))
}

// statsAndQueues checks that counters and queues have the neighbors in the main set.
func statsAndQueues(ctx context.Context, m *member) error {
	r, err := m.c.Irecv(make([]byte, 1), (m.c.Rank()+1)%m.c.Size(), 9)
	if err != nil {
		return err
	}
	q, err := m.c.Inspect()
	if err != nil || len(q.Posted) != 1 {
		return fmt.Errorf("inspection: %+v, %w", q, err)
	}
	if err := mpi.Barrier(ctx, m.c); err != nil {
		return err
	}
	if err := m.c.Send(ctx, make([]byte, 1), (m.c.Rank()+m.c.Size()-1)%m.c.Size(), 9); err != nil {
		return err
	}
	if _, err := r.Wait(ctx); err != nil {
		return err
	}
	known := map[uint32]bool{}
	for _, p := range m.s.Stats().Peers {
		known[p.Proc.Rank] = true
	}
	for _, neighbor := range []int{m.c.Rank() + 1, m.c.Rank() + m.c.Size() - 1} {
		if p := m.c.Group().Members()[neighbor%m.c.Size()]; !known[p.Rank] {
			return fmt.Errorf("no counters of rank %d", p.Rank)
		}
	}
	return nil
}

// The members that remain use a communicator of the earlier set.
func TestComm_MemberLeaves_OthersContinue(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 3}, func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err
		}
		old, err := m.c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := talk(ctx, old); err != nil {
			return err
		}
		if m.rank == 2 {
			if err := old.Close(); err != nil {
				return err
			}
		}
		isMember, err := m.change(ctx, map[bool]*step{true: {mpi.PsetShrink, mpi.PsetArgs{Sub: 1}, 2}}[m.rank == 0])
		if !isMember || err != nil {
			return err
		}
		if _, err := old.Recv(ctx, nil, 2, 0); !errors.Is(err, framework.ErrPeerClosed) {
			return fmt.Errorf("receive from a rank that left: %w", err)
		}
		if err := old.Ssend(ctx, nil, 2, 0); !errors.Is(err, framework.ErrPeerClosed) {
			return fmt.Errorf("send to a rank that left: %w", err)
		}
		g, err := old.Group().Excl(2)
		if err != nil {
			return err
		}
		c, err := old.CreateGroup(ctx, g, 0)
		if err != nil {
			return err
		}
		return errors.Join(talk(ctx, c), c.Close(), old.Close(), m.run(ctx, nil))
	})
}
