package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/internal/mem"
)

// NeighborAllgather sends send to all destinations, and receives a block of len(send) elements from each source
// (MPI_Neighbor_allgather).
//
// Collectives among neighbors (MPI-4.1 section 8.6) are for communicators with a topology, which are those of a Cart or Graph and
// their duplicates. They return ErrTopology on others. All members call them, in one order with all other collectives, and each exchanges
// blocks with its neighbors only. Blocks are in the order of the neighbors.
//
// In a Cart, each dimension has two neighbors, the one before and then the one behind. The block for the neighbor before
// arrives there as the block of the neighbor behind, also if both are one process. At the end of a dimension that is not
// periodic, one of them is missing. Its blocks have room in the buffers, and are neither sent nor written.
//
// In a Graph, the blocks of send are those of Neighbors.Destinations, and the blocks of recv those of Neighbors.Sources.
// Several blocks between the same members arrive in the order of their sends.
//
// Buffers are distinct.
func NeighborAllgather[T any](ctx context.Context, c *Comm, send, recv []T) error {
	var x run.Call
	return c.collective.Run(ctx, &x, neighborAllgather(&x, c, send, recv))
}

// NeighborAllgatherv is NeighborAllgather of blocks that differ (MPI_Neighbor_allgatherv). counts has the length of the
// block of each source, and displs its first element, as in Allgatherv.
func NeighborAllgatherv[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, neighborAllgatherv(&x, c, send, recv, counts, displs))
}

// NeighborAlltoall sends a block of send to each destination, and receives a block of the same length from each source
// (MPI_Neighbor_alltoall), in the order of NeighborAllgather. send has as many equal blocks as there are destinations, and a remainder is ErrRank. At a member
// without destinations, recv has as many equal blocks as there are sources.
func NeighborAlltoall[T any](ctx context.Context, c *Comm, send, recv []T) error {
	var x run.Call
	return c.collective.Run(ctx, &x, neighborAlltoall(&x, c, send, recv))
}

// NeighborAlltoallv is NeighborAlltoall of blocks that differ (MPI_Neighbor_alltoallv). Counts and displacements are those of
// each destination and each source, as in Alltoallv.
func NeighborAlltoallv[T any](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, neighborAlltoallv(&x, c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls))
}

// IneighborAllgather starts a NeighborAllgather (MPI_Ineighbor_allgather).
func IneighborAllgather[T any](c *Comm, send, recv []T) (Request, error) {
	var x run.Call
	return c.start(&x, neighborAllgather(&x, c, send, recv))
}

// IneighborAllgatherv starts a NeighborAllgatherv (MPI_Ineighbor_allgatherv).
func IneighborAllgatherv[T any](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	var x run.Call
	return c.start(&x, neighborAllgatherv(&x, c, send, recv, counts, displs))
}

// IneighborAlltoall starts a NeighborAlltoall (MPI_Ineighbor_alltoall).
func IneighborAlltoall[T any](c *Comm, send, recv []T) (Request, error) {
	var x run.Call
	return c.start(&x, neighborAlltoall(&x, c, send, recv))
}

// IneighborAlltoallv starts a NeighborAlltoallv (MPI_Ineighbor_alltoallv).
func IneighborAlltoallv[T any](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	var x run.Call
	return c.start(&x, neighborAlltoallv(&x, c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls))
}

func neighborAllgather[T any](x *run.Call, c *Comm, send, recv []T) error {
	n, err := among[T](x, c, coll.NeighborAllgather)
	if err != nil {
		return err
	}
	if needs := times(max(1, len(n.Sources)), len(send)); len(n.Sources) > 0 && len(recv) < needs {
		return errShort("the result", len(recv), needs)
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	x.SetBlockSize(len(x.In))
	return nil
}

func neighborAllgatherv[T any](x *run.Call, c *Comm, send, recv []T, counts, displs []int) error {
	n, err := among[T](x, c, coll.NeighborAllgatherv)
	if err != nil {
		return err
	}
	x.RecvBlocks = run.Blocks{Counts: counts, Displs: displs}
	if err := checkNeighbors(x.RecvBlocks, "recv", len(recv), n.Sources, true); err != nil {
		return err
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	x.Args.OwnSize = len(x.In)
	return nil
}

func neighborAlltoall[T any](x *run.Call, c *Comm, send, recv []T) error {
	n, err := among[T](x, c, coll.NeighborAlltoall)
	if err != nil {
		return err
	}
	what, all, parts := "send", len(send), len(n.Destinations)
	if parts == 0 {
		what, all, parts = "recv", len(recv), len(n.Sources)
	}
	if parts > 0 && all%parts != 0 {
		return fmt.Errorf("%w: %s has %d elements for %d neighbors: a remainder is left; pass blocks of equal length, or use the form with counts", ErrRank, what, all, parts)
	}
	size := all / max(1, parts)
	if needs := times(max(1, len(n.Sources)), size); len(n.Sources) > 0 && len(recv) < needs {
		return errShort("the result", len(recv), needs)
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	x.SetBlockSize(size * x.Args.ElemSize)
	return nil
}

func neighborAlltoallv[T any](x *run.Call, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	n, err := among[T](x, c, coll.NeighborAlltoallv)
	if err != nil {
		return err
	}
	x.SendBlocks, x.RecvBlocks = run.Blocks{Counts: sendCounts, Displs: sendDispls}, run.Blocks{Counts: recvCounts, Displs: recvDispls}
	if err := checkNeighbors(x.SendBlocks, "send", len(send), n.Destinations, false); err != nil {
		return err
	}
	if err := checkNeighbors(x.RecvBlocks, "recv", len(recv), n.Sources, true); err != nil {
		return err
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	return nil
}

// among begins a call of an operation among neighbors, and returns the neighbors.
func among[T any](x *run.Call, c *Comm, op coll.Operation) (*coll.Neighborhood, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	x.Args.ElemSize = mem.Size[T]()
	return chooseNeighbors(x, c, op)
}

// checkNeighbors is check of blocks with one for each neighbor.
func checkNeighbors(b run.Blocks, what string, room int, neighbors []int, apart bool) error {
	if len(b.Counts) != len(neighbors) {
		return fmt.Errorf("%w: %d counts of %s, for %d neighbors", ErrRank, len(b.Counts), what, len(neighbors))
	}
	_, err := b.Check(what, room, apart)
	return err
}
