package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
)

// topology is a grid or a graph of the members of a communicator (MPI-4.1 chapter 8). It is immutable, and
// duplicates share it.
type topology struct {
	grid         *grid      // nil for a graph.
	graph        *Neighbors // nil for a grid.
	neighborhood coll.Neighborhood
	algorithms   [neighborOperations]coll.Algorithm
	choices      [neighborOperations]coll.Choice
}

// neighborOperations is the number of operations among neighbors.
const neighborOperations = coll.NeighborAlltoallv - coll.NeighborAllgather + 1

// newTopology completes a topology with its neighborhood.
func newTopology(t *topology, n coll.Neighborhood) *topology {
	t.neighborhood = n
	for i := range t.choices {
		t.algorithms[i] = t.neighborhood.Algorithm(coll.NeighborAllgather + coll.Operation(i))
		t.choices[i] = coll.Choice{Component: "neighbors", Algorithm: &t.algorithms[i]}
	}
	return t
}

// chooseNeighbors sets the algorithm of an operation among neighbors, and returns the neighbors. It returns ErrTopology for a
// communicator without a topology.
func chooseNeighbors(x *run.Call, c *Comm, op coll.Operation) (*coll.Neighborhood, error) {
	if c.isClosed() {
		return nil, c.errClosed()
	}
	t := c.topology
	if t == nil {
		return nil, fmt.Errorf("%w: the communicator has none; NewCart, NewGraph and NewAdjacentGraph make one that has", ErrTopology)
	}
	x.Op, x.NeighborChoice = op, &t.choices[op-coll.NeighborAllgather]
	return &t.neighborhood, nil
}

// derived creates a communicator with c's members, as Dup does, without attributes and topology.
func (c *Comm) derived(ctx context.Context, op string) (*Comm, error) {
	var id cid.Extended
	err := c.collective.Do(ctx, op, 0, func() error {
		ids, err := c.derive(ctx, c.takeLastDup(), 1)
		if err == nil {
			id = ids[0]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.same(id)
}
