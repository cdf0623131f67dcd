package mpi

import (
	"context"

	"github.com/ferrympi/ferry/coll/run"
)

// The persistent forms of the collectives among neighbors (MPI-4.1 section 8.8). They are initialized and started as
// those of other collectives. See BarrierInit.

// NeighborAllgatherInit initializes a persistent NeighborAllgather (MPI_Neighbor_allgather_init).
func NeighborAllgatherInit[T any](ctx context.Context, c *Comm, send, recv []T) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, neighborAllgather(x, c, send, recv))
}

// NeighborAllgathervInit initializes a persistent NeighborAllgatherv (MPI_Neighbor_allgatherv_init).
func NeighborAllgathervInit[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, neighborAllgatherv(x, c, send, recv, counts, displs))
}

// NeighborAlltoallInit initializes a persistent NeighborAlltoall (MPI_Neighbor_alltoall_init).
func NeighborAlltoallInit[T any](ctx context.Context, c *Comm, send, recv []T) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, neighborAlltoall(x, c, send, recv))
}

// NeighborAlltoallvInit initializes a persistent NeighborAlltoallv (MPI_Neighbor_alltoallv_init).
func NeighborAlltoallvInit[T any](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, neighborAlltoallv(x, c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls))
}
