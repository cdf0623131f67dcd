package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestGraph_RandomEdges_ReachBothEnds(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, inWorld(graphs)) })
	}
}

// graphs creates graphs of random edges, each passed by a random member. The weight of an edge is its index.
func graphs(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all, mine := make([]mpi.Edge, rng.IntN(3*c.Size()+1)), []mpi.Edge(nil)
		passed := make([][]mpi.Edge, c.Size())
		for i := range all {
			all[i] = mpi.Edge{From: rng.IntN(c.Size()), To: rng.IntN(c.Size()), Weight: i}
			by := rng.IntN(c.Size())
			passed[by] = append(passed[by], all[i])
		}
		mine = passed[c.Rank()]
		g, err := mpi.NewGraph(ctx, c, mine...)
		if err != nil {
			return err
		}
		if err := errors.Join(ownNeighbors(g, all), alongEdges(ctx, g), asAdjacent(ctx, c, g)); err != nil {
			return fmt.Errorf("seed %d, edges %v: %w", seed, passed, err)
		}
		if err := g.Comm().Close(); err != nil {
			return err
		}
	}
	return nil
}

// ownNeighbors checks a member's neighbors against all edges.
func ownNeighbors(g *mpi.Graph, all []mpi.Edge) error {
	n, me := g.Neighbors(), g.Comm().Rank()
	var in, out []mpi.Edge
	for i, rank := range n.Sources {
		in = append(in, mpi.Edge{From: rank, To: me, Weight: n.SourceWeights[i]})
	}
	for i, rank := range n.Destinations {
		out = append(out, mpi.Edge{From: me, To: rank, Weight: n.DestinationWeights[i]})
	}
	ordered := func(a, b mpi.Edge) int { return a.From - b.From + a.To - b.To }
	if !slices.IsSortedFunc(in, ordered) || !slices.IsSortedFunc(out, ordered) {
		return fmt.Errorf("neighbors %+v are not in the order of ranks", n)
	}
	for _, e := range all {
		if slices.Contains(in, e) != (e.To == me) || slices.Contains(out, e) != (e.From == me) {
			return fmt.Errorf("edge %v of rank %d: neighbors are %+v", e, me, n)
		}
	}
	return nil
}

// alongEdges sends the weight of each edge along it.
func alongEdges(ctx context.Context, g *mpi.Graph) error {
	n := g.Neighbors()
	got := make([]int, len(n.Sources))
	if err := mpi.NeighborAlltoall(ctx, g.Comm(), n.DestinationWeights, got); err != nil {
		return err
	}
	return must(slices.Equal(got, n.SourceWeights), "along the edges of weight %v came %v", n.SourceWeights, got)
}

// asAdjacent creates the same graph from the neighbors of each member.
func asAdjacent(ctx context.Context, c *mpi.Comm, g *mpi.Graph) error {
	n := g.Neighbors()
	a, err := mpi.NewAdjacentGraph(ctx, c, n)
	if err != nil {
		return err
	}
	clear(n.Sources) // The graph has copies.
	d, err := a.Comm().Dup(ctx)
	if err != nil {
		return err
	}
	copied, isGraph := d.Graph()
	if !isGraph {
		return errors.New("a duplicate has no graph")
	}
	if got, want := fmt.Sprint(copied.Neighbors()), fmt.Sprint(g.Neighbors()); got != want {
		return fmt.Errorf("neighbors %s, want %s", got, want)
	}
	return errors.Join(alongEdges(ctx, copied), d.Close(), a.Comm().Close())
}

// The communicator works afterwards.
func TestGraph_WrongArguments_AreErrorsOfTheCallerAlone(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		var wrong []error
		if c.Rank() == 0 {
			for _, x := range []struct {
				n    mpi.Neighbors
				want error
			}{
				{mpi.Neighbors{Sources: []int{2}}, mpi.ErrRank}, {mpi.Neighbors{Destinations: []int{mpi.ProcNull}}, mpi.ErrRank},
				{mpi.Neighbors{Sources: []int{1}, SourceWeights: []int{-1}}, mpi.ErrTopology},
				{mpi.Neighbors{Destinations: []int{1}, DestinationWeights: []int{}}, mpi.ErrTopology},
			} {
				_, err := mpi.NewAdjacentGraph(ctx, c, x.n)
				wrong = append(wrong, wants(fmt.Sprintf("%+v", x.n), err, x.want))
			}
			for e, want := range map[mpi.Edge]error{{From: 2}: mpi.ErrRank, {To: -1}: mpi.ErrRank, {Weight: -1}: mpi.ErrTopology} {
				_, err := mpi.NewGraph(ctx, c, e)
				wrong = append(wrong, wants(fmt.Sprint(e), err, want))
			}
		}
		g, err := mpi.NewGraph(ctx, c, mpi.Edge{From: c.Rank(), To: 1 - c.Rank()})
		if err != nil {
			return err
		}
		if _, isCart := g.Comm().Cart(); isCart {
			return errors.New("a graph is a grid")
		}
		got := make([]int, 1)
		wrong = append(wrong, mpi.NeighborAllgather(ctx, g.Comm(), []int{c.Rank()}, got), must(got[0] == 1-c.Rank(), "received %v", got), g.Comm().Close())
		return errors.Join(wrong...)
	})
}
