package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
)

// Alltoallw is Alltoallv with a layout for each rank (MPI_Alltoallw). The bytes of send that
// sendLayouts[i] names go to rank i, and the bytes from there go to the places in recv that
// recvLayouts[i] names. Layout.At places a layout in a buffer. The layouts of a pair
// have one size. To work in place all members pass nil for send and sendLayouts. ErrTruncate
// for a layout that its buffer does not hold, ErrUnsupported if blocks of a receive layout overlap.
func Alltoallw(ctx context.Context, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) error {
	var x run.Call
	return c.collective.Run(ctx, &x, alltoallw(&x, c, send, sendLayouts, recv, recvLayouts))
}

// Ialltoallw starts an Alltoallw (MPI_Ialltoallw). The bytes of send are copied at once, and recv is written as the operation
// completes. The slices of layouts may be reused at once.
func Ialltoallw(c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) (Request, error) {
	var x run.Call
	return c.start(&x, alltoallw(&x, c, send, sendLayouts, recv, recvLayouts))
}

// AlltoallwInit initializes a persistent Alltoallw (MPI_Alltoallw_init).
func AlltoallwInit(ctx context.Context, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, alltoallw(x, c, send, sendLayouts, recv, recvLayouts))
}

// NeighborAlltoallw is NeighborAlltoallv with a layout for each neighbor (MPI_Neighbor_alltoallw). sendLayouts are those of the
// destinations in send, and recvLayouts those of the sources in recv, as in Alltoallw. The layouts of missing neighbors are not
// used.
func NeighborAlltoallw(ctx context.Context, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) error {
	var x run.Call
	return c.collective.Run(ctx, &x, neighborAlltoallw(&x, c, send, sendLayouts, recv, recvLayouts))
}

// IneighborAlltoallw starts a NeighborAlltoallw (MPI_Ineighbor_alltoallw).
func IneighborAlltoallw(c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) (Request, error) {
	var x run.Call
	return c.start(&x, neighborAlltoallw(&x, c, send, sendLayouts, recv, recvLayouts))
}

// NeighborAlltoallwInit initializes a persistent NeighborAlltoallw (MPI_Neighbor_alltoallw_init).
func NeighborAlltoallwInit(ctx context.Context, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, neighborAlltoallw(x, c, send, sendLayouts, recv, recvLayouts))
}

// packCall begins a call on bytes that are packed.
func packCall(x *run.Call, op coll.Operation) *packing {
	p := new(packing)
	x.Op, x.Args.ElemSize, x.Packing = op, 1, p
	return p
}

func alltoallw(x *run.Call, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) error {
	if c.isClosed() {
		return c.errClosed()
	}
	p := packCall(x, coll.Alltoallv)
	x.Args.IsInPlace = send == nil && sendLayouts == nil
	if !x.Args.IsInPlace {
		if err := p.sendSide.set("sendLayouts", c.size, send, sendLayouts, false); err != nil {
			return err
		}
	}
	if err := p.recvSide.set("recvLayouts", c.size, recv, recvLayouts, true); err != nil {
		return err
	}
	p.recvSide.isPacked = x.Args.IsInPlace
	x.SendBlocks.Counts, x.RecvBlocks.Counts = p.sendSide.blockSizes, p.recvSide.blockSizes
	if !x.Args.IsInPlace && p.sendSide.blockSizes[c.rank] != p.recvSide.blockSizes[c.rank] {
		return fmt.Errorf("%w: sendLayouts[%d], the caller's, has %d bytes, and recvLayouts[%d] has %d", ErrTruncate, c.rank, p.sendSide.blockSizes[c.rank], c.rank, p.recvSide.blockSizes[c.rank])
	}
	return nil
}

func neighborAlltoallw(x *run.Call, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) error {
	p := packCall(x, coll.NeighborAlltoallv)
	n, err := chooseNeighbors(x, c, coll.NeighborAlltoallv)
	if err != nil {
		return err
	}
	if err := p.sendSide.set("sendLayouts", len(n.Destinations), send, sendLayouts, false); err != nil {
		return err
	}
	if err := p.recvSide.set("recvLayouts", len(n.Sources), recv, recvLayouts, true); err != nil {
		return err
	}
	for i, rank := range n.Destinations {
		if rank < 0 {
			p.sendSide.drop(i)
		}
	}
	for i, rank := range n.Sources {
		if rank < 0 {
			p.recvSide.drop(i)
		}
	}
	x.SendBlocks.Counts, x.RecvBlocks.Counts = p.sendSide.blockSizes, p.recvSide.blockSizes
	return nil
}
