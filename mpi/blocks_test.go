package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// value returns element i of the block from one rank to another.
func value(from, to, i int) int { return from*10000 + to*100 + i }

func values(from, to, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = value(from, to, i)
	}
	return s
}

// laid returns n elements with the values of each rank in its block. The other elements are -1.
func laid(n int, counts, displs []int, of func(rank, count int) []int) []int {
	s := slices.Repeat([]int{-1}, n)
	for rank, count := range counts {
		copy(s[displs[rank]:], of(rank, count))
	}
	return s
}

// outcome is the expected contents of a slice after a collective.
func outcome(what string, err error, got, want []int) error {
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%v, want %v", got, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Each function delivers to each rank its block, in place and otherwise, and does not change the elements between and after the blocks.
func TestBlocks_AllOperations_ArriveInTheirBlocks(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, n, func(ctx context.Context, c *mpi.Comm) error {
				for _, block := range []int{0, 1, 3, 2000} {
					if err := errors.Join(equalBlocks(ctx, c, block), unequalBlocks(ctx, c, block)); err != nil {
						return fmt.Errorf("blocks of %d: %w", block, err)
					}
				}
				return nil
			})
		})
	}
}

func equalBlocks(ctx context.Context, c *mpi.Comm, block int) error {
	n, me := c.Size(), c.Rank()
	var counts, displs []int
	for rank := range n {
		counts, displs = append(counts, block), append(displs, rank*block)
	}
	all := func(of func(rank, count int) []int) []int { return laid(n*block+2, counts, displs, of) }
	none := slices.Repeat([]int{-1}, n*block+2)
	given := all(func(r, k int) []int { return values(me, r, k) })[:n*block]
	gathered := all(func(r, k int) []int { return values(r, 0, k) })
	mine := append(values(me, 0, block), 7)[:block] // not nil
	exchanged := all(func(r, k int) []int { return values(r, me, k) })
	var errs []error
	check := func(what string, err error, got, want []int) { errs = append(errs, outcome(what, err, got, want)) }

	recv := slices.Clone(none)
	check("allgather", mpi.Allgather(ctx, c, mine, recv), recv, gathered)
	recv = slices.Clone(none)[:n*block]
	copy(recv[me*block:], mine)
	check("allgather in place", mpi.Allgather(ctx, c, nil, recv), recv, gathered[:n*block])
	recv = slices.Clone(none)
	check("alltoall", mpi.Alltoall(ctx, c, given, recv), recv, exchanged)
	recv = slices.Clone(given)
	check("alltoall in place", mpi.Alltoall(ctx, c, nil, recv), recv, exchanged[:n*block])
	for root := range n {
		recv, want := slices.Clone(none), none
		if me == root {
			want = gathered
		}
		check("gather", mpi.Gather(ctx, c, mine, recv, root), recv, want)
		send := mine
		if me == root {
			send, recv = nil, slices.Clone(none)[:n*block]
			copy(recv[me*block:], mine)
			want = gathered[:n*block]
		}
		check("gather in place", mpi.Gather(ctx, c, send, recv, root), recv, want)

		send = nil // but the root's
		if me == root {
			send = given
		}
		recv, want = slices.Repeat([]int{-1}, block), values(root, me, block)
		if me == root { // The root's buffer may be longer.
			recv, want = append(recv, -1), append(want, -1)
		}
		check("scatter", mpi.Scatter(ctx, c, send, recv, root), recv, want)
		if recv = slices.Repeat([]int{-1}, len(want)); me == root {
			recv, want = nil, nil
		}
		check("scatter in place", mpi.Scatter(ctx, c, send, recv, root), recv, want)
	}
	return errors.Join(errs...)
}

// unequal returns the number of elements from one rank to another, which may be 0.
func unequal(from, to, block int) int { return block * ((from + 2*to) % 3) }

func unequalBlocks(ctx context.Context, c *mpi.Comm, block int) error {
	n, me := c.Size(), c.Rank()
	var counts, sends, recvs, displs, both []int
	for rank := range n {
		counts = append(counts, unequal(rank, 0, block))
		sends, recvs = append(sends, unequal(me, rank, block)), append(recvs, unequal(rank, me, block))
		both = append(both, block*((me+rank)%3))
		displs = append(displs, (n-1-rank)*(2*block+1)+1) // backwards, with gaps
	}
	room := n*(2*block+1) + 1
	packed := make([]int, n)
	for rank := 1; rank < n; rank++ {
		packed[rank] = packed[rank-1] + sends[rank-1]
	}
	none := slices.Repeat([]int{-1}, room)
	mine := append(values(me, 0, counts[me]), 7)[:counts[me]]
	gathered := laid(room, counts, displs, func(r, k int) []int { return values(r, 0, k) })
	given := laid(packed[n-1]+sends[n-1], sends, packed, func(r, k int) []int { return values(me, r, k) })
	var errs []error
	check := func(what string, err error, got, want []int) { errs = append(errs, outcome(what, err, got, want)) }

	recv := slices.Clone(none)
	check("allgatherv", mpi.Allgatherv(ctx, c, mine, recv, counts, displs), recv, gathered)
	recv = slices.Clone(none)
	copy(recv[displs[me]:], mine)
	check("allgatherv in place", mpi.Allgatherv(ctx, c, nil, recv, counts, displs), recv, gathered)
	recv = slices.Clone(none)
	want := laid(room, recvs, displs, func(r, k int) []int { return values(r, me, k) })
	check("alltoallv", mpi.Alltoallv(ctx, c, given, sends, nil, recv, recvs, displs), recv, want)
	recv = laid(room, both, displs, func(r, k int) []int { return values(me, r, k) })
	want = laid(room, both, displs, func(r, k int) []int { return values(r, me, k) })
	check("alltoallv in place", mpi.Alltoallv(ctx, c, nil, nil, nil, recv, both, displs), recv, want)
	for root := range n {
		recv, want := slices.Clone(none), none
		at, given := displs, []int(nil) // counts and displs are ignored at other ranks.
		if me == root {
			want = gathered
		} else {
			at = nil
		}
		check("gatherv", mpi.Gatherv(ctx, c, mine, recv, counts, at, root), recv, want)
		send := mine
		if me == root {
			send, recv = nil, slices.Clone(none)
			copy(recv[displs[me]:], mine)
			given = laid(room, sends, displs, func(r, k int) []int { return values(me, r, k) })
		}
		check("gatherv in place", mpi.Gatherv(ctx, c, send, recv, counts, at, root), recv, want)

		want = values(root, me, unequal(root, me, block))
		if me == root { // whose buffer may be longer
			want = append(want, -1, -1)
		}
		recv = slices.Repeat([]int{-1}, len(want))
		check("scatterv", mpi.Scatterv(ctx, c, given, sends, displs, recv, root), recv, want)
		if recv = slices.Repeat([]int{-1}, len(want)); me == root {
			recv, want = nil, nil
		}
		check("scatterv in place", mpi.Scatterv(ctx, c, given, sends, displs, recv, root), recv, want)
	}
	return errors.Join(errs...)
}

// Reductions deliver to each rank its part, also for an operation that does not commute.
func TestReductions_Blocks_MatchReference(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, n, func(ctx context.Context, c *mpi.Comm) error {
				for _, count := range []int{0, 1, 3, 700} {
					if err := partsOfReductions(ctx, c, count); err != nil {
						return fmt.Errorf("%d elements: %w", count, err)
					}
				}
				return nil
			})
		})
	}
}

func partsOfReductions(ctx context.Context, c *mpi.Comm, count int) error {
	n, me := c.Size(), c.Rank()
	op := mpi.NewOp(func(inout, in []matrix) {
		for i := range in {
			inout[i] = in[i].times(inout[i])
		}
	}, false)
	of := func(rank, i int) matrix { return matrix{{uint64(rank + 1), uint64(i)}, {1, uint64(rank)}} }
	input := func(rank, n int) []matrix {
		s := make([]matrix, n)
		for i := range s {
			s[i] = of(rank, i)
		}
		return s
	}
	// result is that of the ranks below upTo, from element at on.
	result := func(upTo, at, count int) []matrix {
		s := input(0, at+count)
		for rank := 1; rank < upTo; rank++ {
			for i := range s {
				s[i] = s[i].times(of(rank, i))
			}
		}
		return s[at:]
	}
	var errs []error
	check := func(what string, err error, got, want []matrix) {
		if err == nil && !slices.Equal(got[:len(want)], want) {
			err = fmt.Errorf("%v, want %v", got, want)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	recv := make([]matrix, count+1)
	check("scan", mpi.Scan(ctx, c, input(me, count), recv, op), recv, append(result(me+1, 0, count), matrix{}))
	recv = input(me, count)
	check("scan in place", mpi.Scan(ctx, c, nil, recv, op), recv, result(me+1, 0, count))
	recv = slices.Repeat([]matrix{{{7, 7}, {7, 7}}}, count)
	want := slices.Clone(recv)
	if me > 0 {
		want = result(me, 0, count)
	}
	check("exscan", mpi.Exscan(ctx, c, input(me, count), recv, op), recv, want)
	if recv = input(me, count); me == 0 {
		want = input(me, count)
	}
	check("exscan in place", mpi.Exscan(ctx, c, nil, recv, op), recv, want)

	recv = make([]matrix, count+1)
	check("reduce_scatter_block", mpi.ReduceScatterBlock(ctx, c, input(me, n*count), recv, op), recv, append(result(n, me*count, count), matrix{}))
	recv = input(me, n*count)
	check("reduce_scatter_block in place", mpi.ReduceScatterBlock(ctx, c, nil, recv, op), recv, result(n, me*count, count))
	counts, at, total := make([]int, n), 0, 0
	for rank := range counts {
		if counts[rank] = count * (rank % 3); rank < me {
			at += counts[rank]
		}
		total += counts[rank]
	}
	recv = make([]matrix, counts[me]+1)
	check("reduce_scatter", mpi.ReduceScatter(ctx, c, input(me, total), recv, counts, op), recv, append(result(n, at, counts[me]), matrix{}))
	recv = input(me, total)
	check("reduce_scatter in place", mpi.ReduceScatter(ctx, c, nil, recv, counts, op), recv, result(n, at, counts[me]))
	return errors.Join(errs...)
}

// A call with invalid blocks fails in that member alone, before anything is sent.
func TestBlocks_Invalid_ReturnErrorBeforeSending(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		buf, four, sum := make([]int, 4), []int{2, 2}, mpi.Sum[int]()
		gatherv := func(counts, displs []int) error {
			return mpi.Allgatherv(ctx, c, make([]int, 2), buf, counts, displs)
		}
		var errs []error
		for what, check := range map[string]struct{ err, want error }{
			"negative count":             {gatherv([]int{2, -1}, nil), mpi.ErrRank},
			"negative displacement":      {gatherv(four, []int{-1, 2}), mpi.ErrRank},
			"too few counts":             {gatherv([]int{2}, nil), mpi.ErrRank},
			"no counts":                  {gatherv(nil, nil), mpi.ErrRank},
			"too few displacements":      {gatherv(four, []int{0}), mpi.ErrRank},
			"overlap":                    {gatherv(four, []int{0, 1}), mpi.ErrTruncate},
			"overlap, backwards":         {gatherv(four, []int{1, 0}), mpi.ErrTruncate},
			"beyond the slice":           {gatherv(four, []int{0, 3}), mpi.ErrTruncate},
			"packed beyond the slice":    {gatherv([]int{2, 3}, nil), mpi.ErrTruncate},
			"displacement near the end":  {gatherv(four, []int{0, math.MaxInt}), mpi.ErrTruncate},
			"sum beyond int":             {gatherv([]int{math.MaxInt, math.MaxInt}, nil), mpi.ErrTruncate},
			"own block of other length":  {gatherv([]int{1, 1}, nil), mpi.ErrTruncate},
			"short result of allgather":  {mpi.Allgather(ctx, c, make([]int, 3), buf), mpi.ErrTruncate},
			"short result of alltoall":   {mpi.Alltoall(ctx, c, make([]int, 6), buf), mpi.ErrTruncate},
			"short result of gather":     {mpi.Gather(ctx, c, make([]int, 3), buf, c.Rank()), mpi.ErrTruncate},
			"short result of scatter":    {mpi.Scatter(ctx, c, make([]int, 10), buf, c.Rank()), mpi.ErrTruncate},
			"short result of scatterv":   {mpi.Scatterv(ctx, c, make([]int, 10), []int{5, 5}, nil, buf, c.Rank()), mpi.ErrTruncate},
			"short input of alltoallv":   {mpi.Alltoallv(ctx, c, make([]int, 3), four, nil, buf, four, nil), mpi.ErrTruncate},
			"no counts of alltoallv":     {mpi.Alltoallv(ctx, c, buf, nil, nil, buf, four, nil), mpi.ErrRank},
			"short result of scan":       {mpi.Scan(ctx, c, make([]int, 5), buf, sum), mpi.ErrTruncate},
			"short input of parts":       {mpi.ReduceScatter(ctx, c, make([]int, 3), buf, four, sum), mpi.ErrTruncate},
			"short result of parts":      {mpi.ReduceScatter(ctx, c, make([]int, 20), buf, []int{10, 10}, sum), mpi.ErrTruncate},
			"short result of a block":    {mpi.ReduceScatterBlock(ctx, c, make([]int, 10), buf, sum), mpi.ErrTruncate},
			"wrong root of gather":       {mpi.Gather(ctx, c, buf, buf, 2), mpi.ErrRank},
			"wrong root of scatterv":     {mpi.Scatterv(ctx, c, buf, four, nil, buf, -1), mpi.ErrRank},
			"pointers":                   {mpi.Allgather(ctx, c, []*int{nil}, make([]*int, 2)), mpi.ErrType},
			"no operation":               {mpi.Exscan(ctx, c, buf, buf, mpi.Op[int]{}), mpi.ErrUnsupported},
			"no operation for the parts": {mpi.ReduceScatterBlock(ctx, c, buf, buf, mpi.Op[int]{}), mpi.ErrUnsupported},
		} {
			errs = append(errs, wants(what, check.err, check.want))
		}
		for _, x := range buf {
			errs = append(errs, must(x == 0, "a refused call has written %v", buf))
		}
		return errors.Join(append(errs, mpi.Barrier(ctx, c))...)
	})
}

// The members that detect the difference return it, and the collectives of all are broken. Lengths for which members would select different algorithms are
// not covered, because the members may then wait for each other.
func TestBlocks_LengthsDiffer_ReturnErrorWithoutHang(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *mpi.Comm, n int) error{
		"bcast": func(ctx context.Context, c *mpi.Comm, n int) error { return mpi.Bcast(ctx, c, make([]byte, n), 0) },
		"allreduce": func(ctx context.Context, c *mpi.Comm, n int) error {
			return mpi.Allreduce(ctx, c, nil, make([]byte, n), mpi.Sum[byte]())
		},
		"allgather": func(ctx context.Context, c *mpi.Comm, n int) error {
			return mpi.Allgather(ctx, c, make([]byte, n), make([]byte, 5*n))
		},
		"alltoall": func(ctx context.Context, c *mpi.Comm, n int) error {
			return mpi.Alltoall(ctx, c, make([]byte, 5*n), make([]byte, 5*n))
		},
		"gather": func(ctx context.Context, c *mpi.Comm, n int) error {
			return mpi.Gather(ctx, c, make([]byte, n), make([]byte, 5*n), 1)
		},
	} {
		for _, lengths := range [][2]int{{8, 16}, {16, 8}, {8, 0}, {0, 8}, {1 << 20, 2 << 20}, {2 << 20, 1 << 20}} {
			t.Run(fmt.Sprint(name, lengths), func(t *testing.T) {
				t.Parallel()
				mpitest.Run(t, 5, func(ctx context.Context, world *mpi.Comm) error {
					c, err := world.Dup(ctx)
					if err != nil {
						return err
					}
					defer c.Close()
					n := lengths[0]
					if c.Rank() == 2 {
						n = lengths[1]
					}
					err = do(ctx, c, n)
					for i := 0; err == nil && i < 3; i++ { // A member with all its data is notified later.
						err = mpi.Barrier(ctx, c)
					}
					return errors.Join(must(err != nil, "no error"), wants("the next one", mpi.Barrier(ctx, c), mpi.ErrBroken), mpi.Barrier(ctx, world))
				})
			})
		}
	}
}
