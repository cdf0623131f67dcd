package mpi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
)

// Neighbors are the neighbors of one member in a graph. A rank may occur several times, and may be that of the member
// itself. Weights have a value for each neighbor, 0 or more; nil is a graph without weights (MPI_UNWEIGHTED).
type Neighbors struct {
	// Ranks that send to the member, and ranks that receive from it.
	Sources, Destinations             []int
	SourceWeights, DestinationWeights []int
}

// Edge is an edge of a graph, from the sending rank From to the receiving rank To.
type Edge struct{ From, To, Weight int }

// Graph is a communicator with the nodes of a directed graph as members (MPI-4.1 section 8.5.4).
type Graph struct{ comm *Comm }

// NewAdjacentGraph creates a communicator with the members of c and a graph. Each member passes its own
// neighbors (MPI_Dist_graph_create_adjacent). It is collective over c, and sends no message. All members keep
// their ranks. A member that has another one as a destination is a source of that one, as many times. Otherwise, collectives
// among neighbors wait for messages that never come. ErrRank for a rank out of range, and ErrTopology for
// weights that do not fit, at once and for that caller alone.
//
// Close the communicator, Comm, after use.
func NewAdjacentGraph(ctx context.Context, c *Comm, n Neighbors) (*Graph, error) {
	if c.isClosed() {
		return nil, c.errClosed()
	}
	n = n.clone()
	if err := c.checkNeighbors(&n); err != nil {
		return nil, err
	}
	d, err := c.derived(ctx, "graph")
	if err != nil {
		return nil, err
	}
	return d.asGraph(&n), nil
}

// NewGraph creates a communicator with the members of c and a graph. Each member passes any edges
// (MPI_Dist_graph_create). Each edge counts once, and several edges may have the same ends. It is collective over c,
// exchanges the edges, and costs a few bytes for each member besides. All members keep their ranks. ErrRank for a rank out of
// range, and ErrTopology for a negative weight, at once and for that caller alone.
//
// Close the communicator, Comm, after use.
func NewGraph(ctx context.Context, c *Comm, edges ...Edge) (*Graph, error) {
	if c.isClosed() {
		return nil, c.errClosed()
	}
	if len(edges) > mostEdges {
		return nil, fmt.Errorf("%w: %d edges; a member passes at most %d", ErrTopology, len(edges), mostEdges)
	}
	for _, e := range edges {
		if err := cmp.Or(c.checkNeighbor(e.From, e.Weight), c.checkNeighbor(e.To, e.Weight)); err != nil {
			return nil, err
		}
	}
	var mine []edge
	err := c.collective.Do(ctx, "graph", 0, func() (err error) {
		mine, err = c.exchangeEdges(ctx, edges)
		return err
	})
	if err != nil {
		return nil, err
	}
	d, err := c.derived(ctx, "graph")
	if err != nil {
		return nil, err
	}
	return d.asGraph(neighborsOf(mine, c.rank)), nil
}

// Graph returns the graph of a communicator that NewGraph or NewAdjacentGraph has made, or that duplicates such a one
// (MPI_Topo_test). It is false for others.
func (c *Comm) Graph() (*Graph, bool) {
	if c.topology == nil || c.topology.graph == nil {
		return nil, false
	}
	return &Graph{c}, true
}

// Comm returns the communicator.
func (g *Graph) Comm() *Comm { return g.comm }

// Neighbors returns the caller's neighbors, in the order of blocks in collectives among neighbors (MPI_Dist_graph_neighbors,
// MPI_Dist_graph_neighbors_count). It is the order that was passed to NewAdjacentGraph. After NewGraph, neighbors are in
// the order of ranks. It is local.
func (g *Graph) Neighbors() Neighbors { return g.comm.topology.graph.clone() }

// asGraph gives a new communicator a graph.
func (c *Comm) asGraph(n *Neighbors) *Graph {
	c.topology = newTopology(&topology{graph: n}, coll.Neighborhood{Sources: n.Sources, Destinations: n.Destinations})
	return &Graph{c}
}

func (n *Neighbors) clone() Neighbors {
	return Neighbors{slices.Clone(n.Sources), slices.Clone(n.Destinations), slices.Clone(n.SourceWeights), slices.Clone(n.DestinationWeights)}
}

// checkNeighbors returns the error of a member's neighbors.
func (c *Comm) checkNeighbors(n *Neighbors) error {
	check := func(what string, ranks, weights []int) error {
		if weights != nil && len(weights) != len(ranks) {
			return fmt.Errorf("%w: %d weights of %d %s; pass one for each, or nil", ErrTopology, len(weights), len(ranks), what)
		}
		for i, rank := range ranks {
			weight := 0
			if weights != nil {
				weight = weights[i]
			}
			if err := c.checkNeighbor(rank, weight); err != nil {
				return err
			}
		}
		return nil
	}
	return cmp.Or(check("sources", n.Sources, n.SourceWeights), check("destinations", n.Destinations, n.DestinationWeights))
}

func (c *Comm) checkNeighbor(rank, weight int) error {
	if rank < 0 || rank >= c.size {
		return fmt.Errorf("neighbor: %w", c.errRank(rank))
	}
	if weight < 0 {
		return fmt.Errorf("%w: weight %d of an edge is negative", ErrTopology, weight)
	}
	return nil
}

// mostEdges is the largest number of edges that a member passes, and that it has. It bounds the memory for
// the numbers that other members announce.
const mostEdges = 1 << 24

// edge is an Edge in a message.
type edge struct{ from, to, weight int64 }

// exchangeEdges sends each edge to its ends, and returns the edges of this member. They are in the order of the members that
// passed them, so that both ends have edges between them in one order. Called inside State.Do.
func (c *Comm) exchangeEdges(ctx context.Context, edges []Edge) ([]edge, error) {
	counts := make([]int64, c.size)
	each := func(f func(rank int, e edge)) {
		for _, e := range edges {
			x := edge{int64(e.From), int64(e.To), int64(e.Weight)}
			if f(e.From, x); e.To != e.From {
				f(e.To, x)
			}
		}
	}
	each(func(rank int, _ edge) { counts[rank]++ })
	theirs := make([]int64, c.size)
	var x run.Call
	err := alltoall(&x, c, counts, theirs)
	if err == nil {
		err = c.collective.Inline(ctx, &x)
	}
	if err != nil {
		return nil, err
	}
	sendCounts, recvCounts, displs := make([]int, c.size), make([]int, c.size), make([]int, c.size)
	sent, received := 0, 0
	for rank, n := range theirs {
		if n < 0 || n > int64(mostEdges-received) {
			return nil, badMessage(c.group.members.at(rank).Proc, fmt.Errorf("graph: %d edges in addition to %d exceed the limit of %d per member", n, received, mostEdges))
		}
		displs[rank] = sent
		sendCounts[rank], recvCounts[rank] = int(counts[rank]), int(n)
		sent += sendCounts[rank]
		received += recvCounts[rank]
	}
	send, recv, next := make([]edge, sent), make([]edge, received), slices.Clone(displs)
	each(func(rank int, e edge) {
		send[next[rank]] = e
		next[rank]++
	})
	var v run.Call
	if err = alltoallv(&v, c, send, sendCounts, displs, recv, recvCounts, nil); err == nil {
		err = c.collective.Inline(ctx, &v)
	}
	if err != nil {
		return nil, err
	}
	return recv, c.checkEdges(recv, recvCounts)
}

// checkEdges returns the error of edges that came from other members.
func (c *Comm) checkEdges(edges []edge, counts []int) error {
	me, n := int64(c.rank), int64(c.size)
	for rank, count := range counts {
		for _, e := range edges[:count] {
			if e.from < 0 || e.from >= n || e.to < 0 || e.to >= n || e.weight < 0 || e.from != me && e.to != me {
				return badMessage(c.group.members.at(rank).Proc, fmt.Errorf("graph: invalid edge from %d to %d of weight %d at rank %d", e.from, e.to, e.weight, me))
			}
		}
		edges = edges[count:]
	}
	return nil
}

// neighborsOf returns the neighbors of a rank in the order of ranks. Edges between the same ends keep their order.
func neighborsOf(edges []edge, rank int) *Neighbors {
	n := &Neighbors{SourceWeights: []int{}, DestinationWeights: []int{}}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	for _, e := range edges {
		if int(e.to) == rank {
			n.Sources, n.SourceWeights = append(n.Sources, int(e.from)), append(n.SourceWeights, int(e.weight))
		}
		if int(e.from) == rank {
			n.Destinations, n.DestinationWeights = append(n.Destinations, int(e.to)), append(n.DestinationWeights, int(e.weight))
		}
	}
	return n
}
