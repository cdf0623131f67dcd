package mpi

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
)

// The nonblocking forms of the collectives have the arguments of the blocking ones. Buffers
// belong to the library until the request is complete. Counts and displacements may be reused at
// once. All members call collectives in the same order, blocking ones included, which may follow while
// others are in progress. They progress while the program computes, complete in any order, and also
// after Close of the communicator. Any number may be in progress. Those of a communicator beyond
// 1,000 begin as earlier ones complete.
//
// Wait and all functions on requests accept them together with requests of messages. Their Status has
// no source and tag, only Err. They cannot be canceled (ErrUnsupported). A failure breaks the
// communicator's collectives like that of a blocking one.

// Ibarrier starts a Barrier (MPI_Ibarrier). It completes when all members have started it.
func Ibarrier(c *Comm) (Request, error) {
	return c.start(&run.Call{Op: coll.Barrier}, nil)
}

// Ibcast starts a Bcast (MPI_Ibcast).
func Ibcast[T any](c *Comm, buf []T, root int) (Request, error) {
	var x run.Call
	return c.start(&x, bcast(&x, c, buf, root))
}

// Ireduce starts a Reduce (MPI_Ireduce).
func Ireduce[T any](c *Comm, send, recv []T, op Op[T], root int) (Request, error) {
	var x run.Call
	return c.start(&x, reduce(&x, c, send, recv, op, root))
}

// Iallreduce starts an Allreduce (MPI_Iallreduce).
func Iallreduce[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	var x run.Call
	return c.start(&x, reduction(&x, coll.Allreduce, send, recv, op, true))
}

// Iscan starts a Scan (MPI_Iscan).
func Iscan[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	var x run.Call
	return c.start(&x, reduction(&x, coll.Scan, send, recv, op, true))
}

// Iexscan starts an Exscan (MPI_Iexscan).
func Iexscan[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	var x run.Call
	return c.start(&x, reduction(&x, coll.Exscan, send, recv, op, true))
}

// IreduceScatterBlock starts a ReduceScatterBlock (MPI_Ireduce_scatter_block).
func IreduceScatterBlock[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	var x run.Call
	return c.start(&x, reduceScatter(&x, c, coll.ReduceScatterBlock, send, recv, nil, op))
}

// IreduceScatter starts a ReduceScatter (MPI_Ireduce_scatter).
func IreduceScatter[T any](c *Comm, send, recv []T, counts []int, op Op[T]) (Request, error) {
	var x run.Call
	return c.start(&x, reduceScatter(&x, c, coll.ReduceScatter, send, recv, counts, op))
}

// Igather starts a Gather (MPI_Igather).
func Igather[T any](c *Comm, send, recv []T, root int) (Request, error) {
	var x run.Call
	return c.start(&x, gather(&x, c, send, recv, root))
}

// Igatherv starts a Gatherv (MPI_Igatherv).
func Igatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) (Request, error) {
	var x run.Call
	return c.start(&x, gatherv(&x, c, send, recv, counts, displs, root))
}

// Iscatter starts a Scatter (MPI_Iscatter).
func Iscatter[T any](c *Comm, send, recv []T, root int) (Request, error) {
	var x run.Call
	return c.start(&x, scatter(&x, c, send, recv, root))
}

// Iscatterv starts a Scatterv (MPI_Iscatterv).
func Iscatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) (Request, error) {
	var x run.Call
	return c.start(&x, scatterv(&x, c, send, counts, displs, recv, root))
}

// Iallgather starts an Allgather (MPI_Iallgather).
func Iallgather[T any](c *Comm, send, recv []T) (Request, error) {
	var x run.Call
	return c.start(&x, allgather(&x, c, send, recv))
}

// Iallgatherv starts an Allgatherv (MPI_Iallgatherv).
func Iallgatherv[T any](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	var x run.Call
	return c.start(&x, allgatherv(&x, c, send, recv, counts, displs))
}

// Ialltoall starts an Alltoall (MPI_Ialltoall).
func Ialltoall[T any](c *Comm, send, recv []T) (Request, error) {
	var x run.Call
	return c.start(&x, alltoall(&x, c, send, recv))
}

// Ialltoallv starts an Alltoallv (MPI_Ialltoallv).
func Ialltoallv[T any](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	var x run.Call
	return c.start(&x, alltoallv(&x, c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls))
}
