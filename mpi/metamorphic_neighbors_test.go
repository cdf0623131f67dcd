package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/mpi"
)

// neighbors is form for a collective among neighbors, in a graph that the call creates. Each member sends to the next one, to
// one at a drawn distance, which may be the next one too, and to itself in some steps.
func (x shape[T]) neighbors(kind string, block int) (f form, err error) {
	c := x.c
	n, me := c.Size(), c.Rank()
	var g mpi.Neighbors
	for _, distance := range []int{1, 1 + x.s.Vary%n, 0}[:2+x.s.Vary%2] {
		g.Destinations, g.Sources = append(g.Destinations, (me+distance)%n), append(g.Sources, (me+n*n-distance)%n)
	}
	counts, own := make([]int, len(g.Sources)), x.count(me, me, block)
	sendCounts := make([]int, len(g.Destinations))
	for i := range g.Sources {
		counts[i], sendCounts[i] = x.count(g.Sources[i], me, block), x.count(me, g.Destinations[i], block)
		if kind == "allgatherv" {
			counts[i] = x.count(g.Sources[i], g.Sources[i], block)
		}
	}
	var call func(context.Context, *mpi.Comm) error
	var start func(*mpi.Comm) (mpi.Request, error)
	displs, room := x.places(counts)
	switch kind {
	case "allgather":
		send, recv := x.given(block), x.blank(len(counts)*block)
		call = func(ctx context.Context, c *mpi.Comm) error { return mpi.NeighborAllgather(ctx, c, send, recv) }
		start = func(c *mpi.Comm) (mpi.Request, error) { return mpi.IneighborAllgather(c, send, recv) }
	case "allgatherv":
		send, recv := x.given(own), x.blank(room)
		call = func(ctx context.Context, c *mpi.Comm) error {
			return mpi.NeighborAllgatherv(ctx, c, send, recv, counts, displs)
		}
		start = func(c *mpi.Comm) (mpi.Request, error) {
			return mpi.IneighborAllgatherv(c, send, recv, counts, displs)
		}
	case "alltoall":
		send, recv := x.given(len(counts)*block), x.blank(len(counts)*block)
		call = func(ctx context.Context, c *mpi.Comm) error { return mpi.NeighborAlltoall(ctx, c, send, recv) }
		start = func(c *mpi.Comm) (mpi.Request, error) { return mpi.IneighborAlltoall(c, send, recv) }
	case "alltoallv":
		recv := x.blank(room)
		sendDispls, sendRoom := x.places(sendCounts)
		send := x.given(sendRoom)
		if x.usesLayouts() {
			out, in := layoutsOf[T](sendCounts, sendDispls), layoutsOf[T](counts, displs)
			call = func(ctx context.Context, c *mpi.Comm) error {
				return mpi.NeighborAlltoallw(ctx, c, mem.Bytes(send), out, mem.Bytes(recv), in)
			}
			start = func(c *mpi.Comm) (mpi.Request, error) {
				return mpi.IneighborAlltoallw(c, mem.Bytes(send), out, mem.Bytes(recv), in)
			}
			break
		}
		call = func(ctx context.Context, c *mpi.Comm) error {
			return mpi.NeighborAlltoallv(ctx, c, send, sendCounts, sendDispls, recv, counts, displs)
		}
		start = func(c *mpi.Comm) (mpi.Request, error) {
			return mpi.IneighborAlltoallv(c, send, sendCounts, sendDispls, recv, counts, displs)
		}
	default:
		return f, fmt.Errorf("no step %q among neighbors", kind)
	}
	f.block = func(ctx context.Context) error {
		return withGraph(ctx, c, g, func(c *mpi.Comm) error { return call(ctx, c) })
	}
	f.start = func() (q mpi.Request, err error) {
		err = withGraph(context.Background(), c, g, func(c *mpi.Comm) (err error) {
			q, err = start(c)
			return err
		})
		return q, err
	}
	f.see = x.see
	return f, nil
}

// withGraph calls f with a communicator of a graph, and closes it. An operation that f starts completes after that.
func withGraph(ctx context.Context, c *mpi.Comm, n mpi.Neighbors, f func(*mpi.Comm) error) error {
	g, err := mpi.NewAdjacentGraph(ctx, c, n)
	if err != nil {
		return err
	}
	return errors.Join(f(g.Comm()), g.Comm().Close())
}
