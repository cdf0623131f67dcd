package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// apartClient is a client with a map of one rank for each node.
type apartClient struct{ bootstrap.Client }

func (c apartClient) Identity() bootstrap.Identity {
	id := c.Client.Identity()
	id.Nodes = nil
	for rank := range uint32(id.Size) {
		id.Nodes = append(id.Nodes, bootstrap.NodeRun{First: rank, Count: 1, Node: rank})
	}
	return id.OnNode(id.Nodes)
}

func (c apartClient) Unwrap() any { return c.Client }

// Processes of one machine that the map has on several nodes share memory, with and without levels.
func TestSplitShared_MapIsWrong_FollowsCards(t *testing.T) {
	for _, from := range []string{"0", "1024"} {
		t.Run("roots_from="+from, func(t *testing.T) {
			t.Parallel()
			mpitest.Job{Size: 3, Params: map[string]string{"bootstrap.roots_from": from}}.RunSessions(t, splitsWithWrongMap)
		})
	}
}

func splitsWithWrongMap(ctx context.Context) error {
	s, err := mpitest.Open(ctx, mpi.WithBootstrap(apartClient{mpitest.Client(ctx)}))
	if err != nil {
		return err
	}
	for set, size := range map[string]int{"mpix://SHARED": 1, "mpix://ROOTS": 3} {
		g, err := s.Group(ctx, set)
		if err != nil {
			return err
		}
		if g.Size() != size {
			return fmt.Errorf("%s has members %v, want %d", set, g.Members(), size)
		}
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, world, "wrong map")
	if err != nil {
		return err
	}
	node, err := c.SplitShared(ctx, 0)
	if err != nil {
		return err
	}
	if node.Size() != 3 || node.Rank() != c.Rank() {
		return fmt.Errorf("rank %d of %d on the node", node.Rank(), node.Size())
	}
	if by, err := c.Transport((c.Rank() + 1) % 3); err != nil || by.Component != "shm" {
		return fmt.Errorf("messages go by %+v, %w", by, err)
	}
	return errors.Join(mpi.Barrier(ctx, node), node.Close(), c.Close(), s.Close())
}
