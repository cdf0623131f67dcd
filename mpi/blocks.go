package mpi

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/internal/mem"
)

// Operations on a block for each rank. Blocks of different sizes have counts[i] elements and begin at element displs[i]. With nil displs they are
// contiguous. Counts and displacements may be reused when the call returns, also with nonblocking forms.

// Gather collects the block send of every member in recv of the root, in the order of ranks (MPI_Gather). All blocks have len(send) elements. recv
// is used at the root only. With nil for send the root works in place. Its block is then already in recv, and the block length is len(recv)
// divided by the number of members. A remainder is ErrRank.
func Gather[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, gather(&x, c, send, recv, root))
}

// Gatherv is Gather of blocks that differ (MPI_Gatherv). counts, displs and recv are
// used at the root only.
func Gatherv[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, gatherv(&x, c, send, recv, counts, displs, root))
}

// Scatter sends each member the block of its rank from send of the root (MPI_Scatter). The block length is len(send) divided by the number of members.
// A remainder is ErrRank at the root. send is used at the root only, where recv may be longer than a block. At other members recv must have the
// length of a block. Another length is an error in that member. With nil for recv the root works in place, and its block stays in send.
func Scatter[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, scatter(&x, c, send, recv, root))
}

// Scatterv is Scatter of blocks that differ (MPI_Scatterv). send, counts and displs are
// used at the root only. Elsewhere recv has the length of the member's block, as in Scatter.
func Scatterv[T any](ctx context.Context, c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, scatterv(&x, c, send, counts, displs, recv, root))
}

// Allgather is Gather with the result in every member's recv (MPI_Allgather). nil for
// send works in place, as at the root of Gather.
func Allgather[T any](ctx context.Context, c *Comm, send, recv []T) error {
	var x run.Call
	return c.collective.Run(ctx, &x, allgather(&x, c, send, recv))
}

// Allgatherv is Allgather of blocks that differ (MPI_Allgatherv). counts are the same in
// all members; displs need not be.
func Allgatherv[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, allgatherv(&x, c, send, recv, counts, displs))
}

// Alltoall sends block i of send to rank i, and receives block i of recv from there
// (MPI_Alltoall); send has as many equal blocks as there are members, and a remainder is
// ErrRank. nil for send works in place. The blocks are those of recv then, and the block of a
// rank is replaced by the block that comes from there.
func Alltoall[T any](ctx context.Context, c *Comm, send, recv []T) error {
	var x run.Call
	return c.collective.Run(ctx, &x, alltoall(&x, c, send, recv))
}

// Alltoallv is Alltoall with blocks of different sizes (MPI_Alltoallv). All members work in place if they pass nil for send, sendCounts and
// sendDispls. The block from a rank then replaces the block to that rank, which has the same length. A block to the caller itself that is longer in
// send than in recv is ErrTruncate.
func Alltoallv[T any](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, alltoallv(&x, c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls))
}

func gather[T any](x *run.Call, c *Comm, send, recv []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.Op, x.Args.Root = coll.Gather, root
	size := len(send)
	if c.rank == root {
		if x.Args.IsInPlace = send == nil; x.Args.IsInPlace {
			var err error
			if size, err = c.blockLength("recv", len(recv)); err != nil {
				return err
			}
		}
		if needs := times(c.size, size); len(recv) < needs {
			return errShort("the result", len(recv), needs)
		}
		x.Out = mem.Bytes(recv)
	}
	x.In = mem.Bytes(send)
	x.SetBlockSize(size * mem.Size[T]())
	return nil
}

func gatherv[T any](x *run.Call, c *Comm, send, recv []T, counts, displs []int, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.Op, x.Args.Root, x.Args.ElemSize = coll.Gatherv, root, mem.Size[T]()
	x.In, x.Args.OwnSize = mem.Bytes(send), len(send)*x.Args.ElemSize
	if c.rank != root {
		return nil
	}
	x.Args.IsInPlace = send == nil
	x.Out = mem.Bytes(recv)
	return gathers(x, c, len(send), len(recv), counts, displs)
}

// gathers checks the blocks of a member that gets those of all, and its own.
func gathers(x *run.Call, c *Comm, own, room int, counts, displs []int) error {
	if err := c.checkCounts(counts); err != nil {
		return err
	}
	x.RecvBlocks = run.Blocks{Counts: counts, Displs: displs}
	if _, err := x.RecvBlocks.Check("recv", room, true); err != nil {
		return err
	}
	if !x.Args.IsInPlace && own != counts[c.rank] {
		return fmt.Errorf("%w: send has %d elements, and counts[%d], the caller's, is %d", ErrTruncate, own, c.rank, counts[c.rank])
	}
	x.Args.OwnSize = counts[c.rank] * x.Args.ElemSize
	return nil
}

func scatter[T any](x *run.Call, c *Comm, send, recv []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.Op, x.Args.Root = coll.Scatter, root
	size := len(recv)
	if c.rank == root {
		var err error
		if size, err = c.blockLength("send", len(send)); err != nil {
			return err
		}
		setScatter(x, mem.Bytes(send), recv == nil)
		if !x.Args.IsInPlace && len(recv) < size {
			return errShort("recv", len(recv), size)
		}
	}
	if !x.Args.IsInPlace {
		x.Out = mem.Bytes(recv)
	}
	x.SetBlockSize(size * mem.Size[T]())
	return nil
}

// setScatter sets the input of a call that sends parts of b. In place, b is also the output at the root.
func setScatter(x *run.Call, b []byte, inPlace bool) {
	if x.Args.IsInPlace = inPlace; inPlace {
		x.Out = b
	} else {
		x.In = b
	}
}

func scatterv[T any](x *run.Call, c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.Op, x.Args.Root, x.Args.ElemSize = coll.Scatterv, root, mem.Size[T]()
	x.Args.OwnSize = len(recv) * x.Args.ElemSize
	if c.rank == root {
		if err := c.checkCounts(counts); err != nil {
			return err
		}
		x.SendBlocks = run.Blocks{Counts: counts, Displs: displs}
		if _, err := x.SendBlocks.Check("send", len(send), false); err != nil {
			return err
		}
		setScatter(x, mem.Bytes(send), recv == nil)
		if !x.Args.IsInPlace && len(recv) < counts[root] {
			return errShort("recv", len(recv), counts[root])
		}
	}
	if !x.Args.IsInPlace {
		x.Out = mem.Bytes(recv)
	}
	return nil
}

func allgather[T any](x *run.Call, c *Comm, send, recv []T) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.Op = coll.Allgather
	size := len(send)
	if x.Args.IsInPlace = send == nil; x.Args.IsInPlace {
		var err error
		if size, err = c.blockLength("recv", len(recv)); err != nil {
			return err
		}
	}
	if needs := times(c.size, size); len(recv) < needs {
		return errShort("the result", len(recv), needs)
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	x.SetBlockSize(size * mem.Size[T]())
	return nil
}

func allgatherv[T any](x *run.Call, c *Comm, send, recv []T, counts, displs []int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.Op, x.Args.ElemSize = coll.Allgatherv, mem.Size[T]()
	x.Args.IsInPlace = send == nil
	if err := gathers(x, c, len(send), len(recv), counts, displs); err != nil {
		return err
	}
	for _, n := range counts {
		x.Args.Size += n * x.Args.ElemSize
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	return nil
}

func alltoall[T any](x *run.Call, c *Comm, send, recv []T) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.Op = coll.Alltoall
	what, all := "send", len(send)
	if x.Args.IsInPlace = send == nil; x.Args.IsInPlace {
		what, all = "recv", len(recv)
	}
	size, err := c.blockLength(what, all)
	if err != nil {
		return err
	}
	if needs := c.size * size; len(recv) < needs {
		return errShort("the result", len(recv), needs)
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	x.SetBlockSize(size * mem.Size[T]())
	return nil
}

func alltoallv[T any](x *run.Call, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.Op, x.Args.ElemSize = coll.Alltoallv, mem.Size[T]()
	if x.Args.IsInPlace = send == nil && sendCounts == nil; !x.Args.IsInPlace {
		if err := c.checkCounts(sendCounts); err != nil {
			return err
		}
		x.SendBlocks = run.Blocks{Counts: sendCounts, Displs: sendDispls}
		if _, err := x.SendBlocks.Check("send", len(send), false); err != nil {
			return err
		}
	}
	if err := c.checkCounts(recvCounts); err != nil {
		return err
	}
	x.RecvBlocks = run.Blocks{Counts: recvCounts, Displs: recvDispls}
	if _, err := x.RecvBlocks.Check("recv", len(recv), true); err != nil {
		return err
	}
	if !x.Args.IsInPlace && sendCounts[c.rank] > recvCounts[c.rank] {
		return fmt.Errorf("%w: sendCounts[%d], the caller's, is %d, and recvCounts[%d] is %d", ErrTruncate, c.rank, sendCounts[c.rank], c.rank, recvCounts[c.rank])
	}
	x.In, x.Out = mem.Bytes(send), mem.Bytes(recv)
	return nil
}

// blockLength returns the length of a block, of a slice that has one for each member:
// ErrRank if a remainder is left.
func (c *Comm) blockLength(name string, elements int) (int, error) {
	if c.isClosed() {
		return 0, c.errClosed()
	}
	if rest := elements % c.size; rest != 0 {
		return 0, fmt.Errorf("%w: %s has %d elements for %d members: a remainder is left; pass blocks of equal length, or use the form with counts", ErrRank, name, elements, c.size)
	}
	return elements / c.size, nil
}

// checkCounts checks that there is one for each rank.
func (c *Comm) checkCounts(counts []int) error {
	if c.isClosed() {
		return c.errClosed()
	}
	if len(counts) != c.size {
		return fmt.Errorf("%w: %d counts, in a communicator of %d", ErrRank, len(counts), c.size)
	}
	return nil
}
