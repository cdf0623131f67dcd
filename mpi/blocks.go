package mpi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/mem"
)

// Operations on a block for each rank. Blocks of different sizes have counts[i] elements and begin at element displs[i]. With nil displs they are
// contiguous. Counts and displacements may be reused when the call returns, also with nonblocking forms.

// Gather collects the block send of every member in recv of the root, in the order of ranks (MPI_Gather). All blocks have len(send) elements. recv
// is used at the root only. With nil for send the root works in place. Its block is then already in recv, and the block length is len(recv)
// divided by the number of members. A remainder is ErrRank.
func Gather[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	var x call
	return c.collective.run(ctx, &x, gather(&x, c, send, recv, root))
}

// Gatherv is Gather of blocks that differ (MPI_Gatherv). counts, displs and recv are
// used at the root only.
func Gatherv[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int, root int) error {
	var x call
	return c.collective.run(ctx, &x, gatherv(&x, c, send, recv, counts, displs, root))
}

// Scatter sends each member the block of its rank from send of the root (MPI_Scatter). The block length is len(send) divided by the number of members.
// A remainder is ErrRank at the root. send is used at the root only, where recv may be longer than a block. At other members recv must have the
// length of a block. Another length is an error in that member. With nil for recv the root works in place, and its block stays in send.
func Scatter[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	var x call
	return c.collective.run(ctx, &x, scatter(&x, c, send, recv, root))
}

// Scatterv is Scatter of blocks that differ (MPI_Scatterv). send, counts and displs are
// used at the root only. Elsewhere recv has the length of the member's block, as in Scatter.
func Scatterv[T any](ctx context.Context, c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	var x call
	return c.collective.run(ctx, &x, scatterv(&x, c, send, counts, displs, recv, root))
}

// Allgather is Gather with the result in every member's recv (MPI_Allgather). nil for
// send works in place, as at the root of Gather.
func Allgather[T any](ctx context.Context, c *Comm, send, recv []T) error {
	var x call
	return c.collective.run(ctx, &x, allgather(&x, c, send, recv))
}

// Allgatherv is Allgather of blocks that differ (MPI_Allgatherv). counts are the same in
// all members; displs need not be.
func Allgatherv[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) error {
	var x call
	return c.collective.run(ctx, &x, allgatherv(&x, c, send, recv, counts, displs))
}

// Alltoall sends block i of send to rank i, and receives block i of recv from there
// (MPI_Alltoall); send has as many equal blocks as there are members, and a remainder is
// ErrRank. nil for send works in place. The blocks are those of recv then, and the block of a
// rank is replaced by the block that comes from there.
func Alltoall[T any](ctx context.Context, c *Comm, send, recv []T) error {
	var x call
	return c.collective.run(ctx, &x, alltoall(&x, c, send, recv))
}

// Alltoallv is Alltoall with blocks of different sizes (MPI_Alltoallv). All members work in place if they pass nil for send, sendCounts and
// sendDispls. The block from a rank then replaces the block to that rank, which has the same length. A block to the caller itself that is longer in
// send than in recv is ErrTruncate.
func Alltoallv[T any](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	var x call
	return c.collective.run(ctx, &x, alltoallv(&x, c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls))
}

func gather[T any](x *call, c *Comm, send, recv []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.op, x.args.Root = coll.Gather, root
	size := len(send)
	if c.rank == root {
		if x.args.IsInPlace = send == nil; x.args.IsInPlace {
			var err error
			if size, err = c.blockLength("recv", len(recv)); err != nil {
				return err
			}
		}
		if needs := times(c.size, size); len(recv) < needs {
			return errShort("the result", len(recv), needs)
		}
		x.out = mem.Bytes(recv)
	}
	x.in = mem.Bytes(send)
	x.setBlockSize(size * mem.Size[T]())
	return nil
}

func gatherv[T any](x *call, c *Comm, send, recv []T, counts, displs []int, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.op, x.args.Root, x.args.ElemSize = coll.Gatherv, root, mem.Size[T]()
	x.in, x.args.OwnSize = mem.Bytes(send), len(send)*x.args.ElemSize
	if c.rank != root {
		return nil
	}
	x.args.IsInPlace = send == nil
	x.out = mem.Bytes(recv)
	return x.gathers(c, len(send), len(recv), counts, displs)
}

// gathers checks the blocks of a member that gets those of all, and its own.
func (x *call) gathers(c *Comm, own, room int, counts, displs []int) error {
	if err := c.checkCounts(counts); err != nil {
		return err
	}
	x.recv = blocks{counts, displs}
	if _, err := x.recv.check("recv", room, true); err != nil {
		return err
	}
	if !x.args.IsInPlace && own != counts[c.rank] {
		return fmt.Errorf("%w: send has %d elements, and counts[%d], the caller's, is %d", ErrTruncate, own, c.rank, counts[c.rank])
	}
	x.args.OwnSize = counts[c.rank] * x.args.ElemSize
	return nil
}

func scatter[T any](x *call, c *Comm, send, recv []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.op, x.args.Root = coll.Scatter, root
	size := len(recv)
	if c.rank == root {
		var err error
		if size, err = c.blockLength("send", len(send)); err != nil {
			return err
		}
		x.setScatter(mem.Bytes(send), recv == nil)
		if !x.args.IsInPlace && len(recv) < size {
			return errShort("recv", len(recv), size)
		}
	}
	if !x.args.IsInPlace {
		x.out = mem.Bytes(recv)
	}
	x.setBlockSize(size * mem.Size[T]())
	return nil
}

// setScatter sets the input of a call that sends parts of b. In place, b is also the output at the root.
func (x *call) setScatter(b []byte, inPlace bool) {
	if x.args.IsInPlace = inPlace; inPlace {
		x.out = b
	} else {
		x.in = b
	}
}

func scatterv[T any](x *call, c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.op, x.args.Root, x.args.ElemSize = coll.Scatterv, root, mem.Size[T]()
	x.args.OwnSize = len(recv) * x.args.ElemSize
	if c.rank == root {
		if err := c.checkCounts(counts); err != nil {
			return err
		}
		x.send = blocks{counts, displs}
		if _, err := x.send.check("send", len(send), false); err != nil {
			return err
		}
		x.setScatter(mem.Bytes(send), recv == nil)
		if !x.args.IsInPlace && len(recv) < counts[root] {
			return errShort("recv", len(recv), counts[root])
		}
	}
	if !x.args.IsInPlace {
		x.out = mem.Bytes(recv)
	}
	return nil
}

func allgather[T any](x *call, c *Comm, send, recv []T) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.op = coll.Allgather
	size := len(send)
	if x.args.IsInPlace = send == nil; x.args.IsInPlace {
		var err error
		if size, err = c.blockLength("recv", len(recv)); err != nil {
			return err
		}
	}
	if needs := times(c.size, size); len(recv) < needs {
		return errShort("the result", len(recv), needs)
	}
	x.in, x.out = mem.Bytes(send), mem.Bytes(recv)
	x.setBlockSize(size * mem.Size[T]())
	return nil
}

func allgatherv[T any](x *call, c *Comm, send, recv []T, counts, displs []int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.op, x.args.ElemSize = coll.Allgatherv, mem.Size[T]()
	x.args.IsInPlace = send == nil
	if err := x.gathers(c, len(send), len(recv), counts, displs); err != nil {
		return err
	}
	for _, n := range counts {
		x.args.Size += n * x.args.ElemSize
	}
	x.in, x.out = mem.Bytes(send), mem.Bytes(recv)
	return nil
}

func alltoall[T any](x *call, c *Comm, send, recv []T) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.op = coll.Alltoall
	what, all := "send", len(send)
	if x.args.IsInPlace = send == nil; x.args.IsInPlace {
		what, all = "recv", len(recv)
	}
	size, err := c.blockLength(what, all)
	if err != nil {
		return err
	}
	if needs := c.size * size; len(recv) < needs {
		return errShort("the result", len(recv), needs)
	}
	x.in, x.out = mem.Bytes(send), mem.Bytes(recv)
	x.setBlockSize(size * mem.Size[T]())
	return nil
}

func alltoallv[T any](x *call, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	x.op, x.args.ElemSize = coll.Alltoallv, mem.Size[T]()
	if x.args.IsInPlace = send == nil && sendCounts == nil; !x.args.IsInPlace {
		if err := c.checkCounts(sendCounts); err != nil {
			return err
		}
		x.send = blocks{sendCounts, sendDispls}
		if _, err := x.send.check("send", len(send), false); err != nil {
			return err
		}
	}
	if err := c.checkCounts(recvCounts); err != nil {
		return err
	}
	x.recv = blocks{recvCounts, recvDispls}
	if _, err := x.recv.check("recv", len(recv), true); err != nil {
		return err
	}
	if !x.args.IsInPlace && sendCounts[c.rank] > recvCounts[c.rank] {
		return fmt.Errorf("%w: sendCounts[%d], the caller's, is %d, and recvCounts[%d] is %d", ErrTruncate, c.rank, sendCounts[c.rank], c.rank, recvCounts[c.rank])
	}
	x.in, x.out = mem.Bytes(send), mem.Bytes(recv)
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

// setBlockSize sets the size of all blocks, in bytes.
func (x *call) setBlockSize(size int) { x.args.Size, x.args.OwnSize = size, size }

// blocks are blocks of different sizes, in elements. With nil displs they are contiguous.
type blocks struct{ counts, displs []int }

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

// check checks the blocks of a buffer of room elements. It returns ErrRank for invalid numbers, and ErrTruncate for blocks outside of the buffer.
// apart forbids overlaps. check returns the sum of the counts.
func (b blocks) check(what string, room int, apart bool) (sum int, err error) {
	if b.displs != nil && len(b.displs) != len(b.counts) {
		return 0, fmt.Errorf("%w: %d displacements of %s for %d counts", ErrRank, len(b.displs), what, len(b.counts))
	}
	end, mixed := 0, false // Of the blocks so far. mixed is set if they are not in order.
	for i, n := range b.counts {
		at := end
		if b.displs != nil {
			at = b.displs[i]
		}
		if n < 0 || at < 0 {
			return 0, fmt.Errorf("%w: block %d of %s has %d elements at %d", ErrRank, i, what, n, at)
		}
		if n > room || at > room-n {
			return 0, fmt.Errorf("%w: block %d of %s has %d elements at %d, and the slice %d", ErrTruncate, i, what, n, at, room)
		}
		if sum > math.MaxInt-n {
			return 0, fmt.Errorf("%w: the counts of %s are too large to add up", ErrTruncate, what)
		}
		if sum += n; n > 0 {
			mixed = mixed || at < end
			end = at + n
		}
	}
	if apart && mixed {
		err = b.apart(what)
	}
	return sum, err
}

// apart finds blocks that overlap.
func (b blocks) apart(what string) error {
	order := make([]int, 0, len(b.counts))
	for i, n := range b.counts {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(b.displs[i], b.displs[j]) })
	for k := 1; k < len(order); k++ {
		if i, j := order[k-1], order[k]; b.displs[i]+b.counts[i] > b.displs[j] {
			return fmt.Errorf("%w: blocks %d and %d of %s overlap", ErrTruncate, i, j, what)
		}
	}
	return nil
}

// bytes returns the sizes and places of the blocks in bytes, in memory that is used
// again; nil if there are none.
func (b blocks) bytes(sizes, places *[]int, elem int) (counts, at []int) {
	if b.counts == nil {
		return nil, nil
	}
	counts, at = (*sizes)[:0], (*places)[:0]
	end := 0
	for i, n := range b.counts {
		if b.displs != nil {
			end = b.displs[i] * elem
		}
		counts, at = append(counts, n*elem), append(at, end)
		end += n * elem
	}
	*sizes, *places = counts, at
	return counts, at
}
