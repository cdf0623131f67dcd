package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/internal/mem"
)

// Reduce combines every member's send, element by element, into root's recv
// (MPI_Reduce), in the order of ranks unless op commutes. All pass equal lengths;
// recv is used at the root only. To work in place the root passes nil for send,
// or the same slice twice.
func Reduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T], root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, reduce(&x, c, send, recv, op, root))
}

// Allreduce is Reduce with the result in every member's recv (MPI_Allreduce).
// All members get the same bits. nil for send works in place.
func Allreduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	var x run.Call
	return c.collective.Run(ctx, &x, reduction(&x, coll.Allreduce, send, recv, op, true))
}

// Scan combines send of the ranks up to the caller's in recv (MPI_Scan). In other respects it is like Allreduce.
func Scan[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	var x run.Call
	return c.collective.Run(ctx, &x, reduction(&x, coll.Scan, send, recv, op, true))
}

// Exscan is Scan of the ranks below the member's own (MPI_Exscan). Rank 0's recv stays
// as it is.
func Exscan[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	var x run.Call
	return c.collective.Run(ctx, &x, reduction(&x, coll.Exscan, send, recv, op, true))
}

// ReduceScatterBlock combines send of all members, and returns to each member the block of its rank (MPI_Reduce_scatter_block). The block length is
// len(send) divided by the number of members. A remainder is ErrRank. With nil for send it works in place. The input is then all of recv, and the
// result is at its beginning. The rest of recv is undefined afterwards.
func ReduceScatterBlock[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	var x run.Call
	return c.collective.Run(ctx, &x, reduceScatter(&x, c, coll.ReduceScatterBlock, send, recv, nil, op))
}

// ReduceScatter is ReduceScatterBlock with blocks of counts elements
// (MPI_Reduce_scatter), which are the same in all members and lie one behind the other.
func ReduceScatter[T any](ctx context.Context, c *Comm, send, recv []T, counts []int, op Op[T]) error {
	var x run.Call
	return c.collective.Run(ctx, &x, reduceScatter(&x, c, coll.ReduceScatter, send, recv, counts, op))
}

func reduce[T any](x *run.Call, c *Comm, send, recv []T, op Op[T], root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	if c.rank != root {
		recv = nil
	}
	x.Args.Root = root
	return reduction(x, coll.Reduce, send, recv, op, c.rank == root)
}

// reduction checks the arguments of a reduction. gets reports that the member has a result, of the length of its input.
func reduction[T any](x *run.Call, kind coll.Operation, send, recv []T, op Op[T], gets bool) error {
	if err := checkReducible(op); err != nil {
		return err
	}
	if send == nil && gets {
		send = recv
	}
	if gets && len(recv) < len(send) {
		return errShort("the result", len(recv), len(send))
	}
	x.In = mem.Bytes(send)
	if gets {
		x.Out = mem.Bytes(recv[:len(send)])
	}
	setReduction(x, kind, op.reducer(), len(x.In), !op.isCommutative, mem.Size[T]())
	return nil
}

// setReduction sets the common fields of reductions. Equal memory for input and result means in place.
func setReduction(x *run.Call, op coll.Operation, r coll.Reducer, size int, ordered bool, elem int) {
	x.Op, x.Reducer = op, r
	x.Args.IsQuick = r.IsQuick
	x.Args.Size, x.Args.OwnSize, x.Args.ElemSize, x.Args.IsOrdered = size, size, elem, ordered
	if len(x.In) > 0 && len(x.Out) > 0 && &x.In[0] == &x.Out[0] {
		x.In, x.Args.IsInPlace = nil, true
	}
}

// checkReducible checks the requirements of reductions.
func checkReducible[T any](op Op[T]) error {
	if err := sendable[T](); err != nil {
		return err
	}
	if op.apply == nil {
		return fmt.Errorf("%w: the zero Op, or that of NewOp(nil), is not an operation; use Sum or another constructor", ErrUnsupported)
	}
	return nil
}

// reduceScatter checks the arguments of one.
func reduceScatter[T any](x *run.Call, c *Comm, kind coll.Operation, send, recv []T, counts []int, op Op[T]) error {
	if err := checkReducible(op); err != nil {
		return err
	}
	if send == nil {
		send = recv
	}
	elem := mem.Size[T]()
	var size, own int
	var err error
	if kind == coll.ReduceScatter {
		if err := c.checkCounts(counts); err != nil {
			return err
		}
		own = counts[c.rank]
		x.SendBlocks = run.Blocks{Counts: counts}
		size, err = x.SendBlocks.Check("send", len(send), false)
	} else {
		size, err = c.blockLength("send", len(send))
		own = size
	}
	if err != nil {
		return err
	}
	if len(recv) < own {
		return errShort("the result", len(recv), own)
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	setReduction(x, kind, op.reducer(), size*elem, !op.isCommutative, elem)
	x.Args.OwnSize = own * elem
	return nil
}
