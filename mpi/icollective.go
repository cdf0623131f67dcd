package mpi

import "github.com/ferrympi/ferry/coll"

// The nonblocking forms of the collectives. Arguments are those of the blocking ones;
// buffers are the library's until the request is complete, counts and displacements the
// caller's again at once. The Status is that of no message, with Err. Errors of the call
// besides those of the blocking form: ErrPending if 1,000 are under way.

// Ibarrier starts a Barrier (MPI_Ibarrier): it is complete when all members have started it.
func Ibarrier(c *Comm) (Request, error) {
	return c.collective.start(&call{op: coll.Barrier}, nil)
}

// Ibcast starts a Bcast (MPI_Ibcast).
func Ibcast[T any](c *Comm, buf []T, root int) (Request, error) {
	x, err := bcast(c, buf, root)
	return c.collective.start(&x, err)
}

// Ireduce starts a Reduce (MPI_Ireduce).
func Ireduce[T any](c *Comm, send, recv []T, op Op[T], root int) (Request, error) {
	x, err := reduce(c, send, recv, op, root)
	return c.collective.start(&x, err)
}

// Iallreduce starts an Allreduce (MPI_Iallreduce).
func Iallreduce[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	x, err := reduction(coll.Allreduce, send, recv, op, true)
	return c.collective.start(&x, err)
}

// Iscan starts a Scan (MPI_Iscan).
func Iscan[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	x, err := reduction(coll.Scan, send, recv, op, true)
	return c.collective.start(&x, err)
}

// Iexscan starts an Exscan (MPI_Iexscan).
func Iexscan[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	x, err := reduction(coll.Exscan, send, recv, op, true)
	return c.collective.start(&x, err)
}

// IreduceScatterBlock starts a ReduceScatterBlock (MPI_Ireduce_scatter_block).
func IreduceScatterBlock[T any](c *Comm, send, recv []T, op Op[T]) (Request, error) {
	x, err := reduceScatter(c, coll.ReduceScatterBlock, send, recv, nil, op)
	return c.collective.start(&x, err)
}

// IreduceScatter starts a ReduceScatter (MPI_Ireduce_scatter).
func IreduceScatter[T any](c *Comm, send, recv []T, counts []int, op Op[T]) (Request, error) {
	x, err := reduceScatter(c, coll.ReduceScatter, send, recv, counts, op)
	return c.collective.start(&x, err)
}

// Igather starts a Gather (MPI_Igather).
func Igather[T any](c *Comm, send, recv []T, root int) (Request, error) {
	x, err := gather(c, send, recv, root)
	return c.collective.start(&x, err)
}

// Igatherv starts a Gatherv (MPI_Igatherv).
func Igatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) (Request, error) {
	x, err := gatherv(c, send, recv, counts, displs, root)
	return c.collective.start(&x, err)
}

// Iscatter starts a Scatter (MPI_Iscatter).
func Iscatter[T any](c *Comm, send, recv []T, root int) (Request, error) {
	x, err := scatter(c, send, recv, root)
	return c.collective.start(&x, err)
}

// Iscatterv starts a Scatterv (MPI_Iscatterv).
func Iscatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) (Request, error) {
	x, err := scatterv(c, send, counts, displs, recv, root)
	return c.collective.start(&x, err)
}

// Iallgather starts an Allgather (MPI_Iallgather).
func Iallgather[T any](c *Comm, send, recv []T) (Request, error) {
	x, err := allgather(c, send, recv)
	return c.collective.start(&x, err)
}

// Iallgatherv starts an Allgatherv (MPI_Iallgatherv).
func Iallgatherv[T any](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	x, err := allgatherv(c, send, recv, counts, displs)
	return c.collective.start(&x, err)
}

// Ialltoall starts an Alltoall (MPI_Ialltoall).
func Ialltoall[T any](c *Comm, send, recv []T) (Request, error) {
	x, err := alltoall(c, send, recv)
	return c.collective.start(&x, err)
}

// Ialltoallv starts an Alltoallv (MPI_Ialltoallv).
func Ialltoallv[T any](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	x, err := alltoallv(c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls)
	return c.collective.start(&x, err)
}
