package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// ranksOf returns the ranks of a process set of a session.
func ranksOf(ctx context.Context, s *mpi.Session, pset string) ([]uint32, error) {
	g, err := s.Group(ctx, pset)
	if err != nil {
		return nil, err
	}
	var ranks []uint32
	for _, p := range g.Members() {
		ranks = append(ranks, p.Rank)
	}
	return ranks, nil
}

// isSet checks the members of a process set.
func isSet(ctx context.Context, s *mpi.Session, pset string, want ...uint32) error {
	got, err := ranksOf(ctx, s, pset)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%s has ranks %v, want %v", pset, got, want)
	}
	return err
}

func TestJob_Nodes_ShareNoMemory(t *testing.T) {
	for _, x := range stacks() {
		if x.name == "tcp" || x.name == "cm alone" { // Without shared memory.
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.job(mpitest.Job{Size: 5, Nodes: 2}).Run(t, onTwoNodes)
		})
	}
}

// onTwoNodes checks ranks 0 to 2 on one node, and 3 and 4 on another.
func onTwoNodes(ctx context.Context, c *mpi.Comm) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	here := []uint32{0, 1, 2}
	if c.Rank() >= 3 {
		here = []uint32{3, 4}
	}
	if err := errors.Join(isSet(ctx, s, "mpix://SHARED", here...), isSet(ctx, s, "mpix://ROOTS", 0, 3), s.Close()); err != nil {
		return err
	}
	for range 2 { // The second collective of a communicator uses shared memory.
		sum := make([]int, 1)
		if err := mpi.Allreduce(ctx, c, []int{1 << c.Rank()}, sum, mpi.Sum[int]()); err != nil || sum[0] != 31 {
			return fmt.Errorf("sum %b, %w", sum[0], err)
		}
	}
	for rank := range c.Size() {
		by, err := c.Transport(rank)
		if isHere := slices.Contains(here, uint32(rank)); err != nil || rank != c.Rank() && isHere != (by.Component == "shm") {
			return fmt.Errorf("messages to rank %d travel by %+v, %w", rank, by, err)
		}
	}
	node, err := c.SplitShared(ctx, 0)
	if err != nil {
		return err
	}
	if node.Size() != len(here) {
		err = fmt.Errorf("%d ranks on the node, want %v", node.Size(), here)
	}
	return errors.Join(err, node.Close())
}

// TestJob_NodesGrow_AddedRanksGoToTheNodeWithTheFewest adds two ranks to three on two nodes. The second node gets the first of them.
func TestJob_NodesGrow_AddedRanksGoToTheNodeWithTheFewest(t *testing.T) {
	mpitest.Job{Size: 3, MaxRanks: 5, Nodes: 2}.RunSessions(t, grown(5, []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 2}, 5}}, func(ctx context.Context, m *member) error {
		shared, roots := [][]uint32{{0, 1}, {0, 1}, {2}, {3}, {4}}[m.rank], []uint32{0, 2}
		if m.rank >= 3 {
			roots = []uint32{3, 4}
		}
		if err := errors.Join(isSet(ctx, m.s, "mpix://SHARED", shared...), isSet(ctx, m.s, "mpix://ROOTS", roots...)); err != nil {
			return err
		}
		node, err := m.c.SplitShared(ctx, 0)
		if err != nil {
			return err
		}
		var here []uint32
		for _, p := range node.Group().Members() {
			here = append(here, p.Rank)
		}
		want := []uint32{0, 1, 4}
		if m.rank == 2 || m.rank == 3 {
			want = []uint32{2, 3}
		}
		if !slices.Equal(here, want) {
			err = fmt.Errorf("ranks %v on the node, want %v", here, want)
		}
		return errors.Join(err, node.Close())
	}))
}
