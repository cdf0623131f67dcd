package colltest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework/kittest"
)

// call is one operation with consistent arguments.
type call struct {
	op          coll.Operation
	memberCount int
	root        int
	// Of the shortest block where blocks differ.
	blockElems int
	element    element
	isInPlace  bool
}

func (c call) String() string {
	return fmt.Sprintf("%v of %d members, root %d, %d elements (%s), in place %v", c.op, c.memberCount, c.root, c.blockElems, c.element.name, c.isInPlace)
}

// member is the part of one member in a call.
type member struct {
	coll.Member
	args     coll.Args
	schedule coll.Schedule
	coll.Call
	instance coll.Instance
	// In, which must be unchanged after the call.
	wantIn []byte
	// Expected beginning of Out. The rest is not compared.
	wantOut []byte
}

func hasRoot(op coll.Operation) bool {
	return slices.Contains([]coll.Operation{coll.Bcast, coll.Reduce, coll.Gather, coll.Gatherv, coll.Scatter, coll.Scatterv}, op)
}

func isReduction(op coll.Operation) bool { return op >= coll.Reduce && op <= coll.ReduceScatter }

func canBeInPlace(op coll.Operation) bool { return op > coll.Bcast }

// elementCount returns the number of elements from one rank to another. A rank of -1 stands for all
// ranks alike.
func (c call) elementCount(from, to int) int {
	differ := 0
	switch c.op {
	case coll.Gatherv, coll.Allgatherv:
		differ = from % 3
	case coll.Scatterv, coll.ReduceScatter:
		differ = to % 3
	case coll.Alltoallv:
		if differ = (from + to) % 4; c.isInPlace { // In place, both directions have the same number.
			break
		}
		differ = (2*from + to) % 4
	}
	if differ == 2 && c.blockElems > 0 { // Some blocks are empty.
		return 0
	}
	return c.blockElems + differ
}

// block returns the data from one rank to another.
func (c call) block(from, to int) []byte {
	return c.element.fill(c.elementCount(from, to), 7*from+to)
}

// placeBlocks places blocks of these sizes with gaps, in descending order of ranks.
func (c call) placeBlocks(sizes []int) (at []int, total int) {
	at = make([]int, len(sizes))
	for rank := len(sizes) - 1; rank >= 0; rank-- {
		if c.op != coll.ReduceScatter { // The input of ReduceScatter is packed.
			total += c.element.size
		}
		at[rank] = total
		total += sizes[rank]
	}
	if c.op == coll.ReduceScatter {
		total = 0
		for rank, n := range sizes {
			at[rank] = total
			total += n
		}
	}
	return at, total
}

// writeBlocks writes blocks to their offsets in memory with other contents in the gaps.
func writeBlocks(at []int, total int, block func(rank int) []byte) []byte {
	b := slices.Repeat([]byte{0xEE}, total)
	for rank := range at {
		copy(b[at[rank]:], block(rank))
	}
	return b
}

// member returns the part of a rank.
func (c call) member(rank int) *member {
	m := &member{Member: coll.Member{Rank: rank, Size: c.memberCount}, Call: coll.Call{Reducer: c.element.reducer()}}
	a := &m.args
	a.Root, a.ElemSize, a.IsOrdered, a.IsQuick = c.root, c.element.size, !c.element.isCommutative, m.IsQuick
	a.Size = c.blockElems * c.element.size
	a.OwnSize = a.Size
	a.IsInPlace = c.isInPlace && (rank == c.root || c.op != coll.Reduce && c.op != coll.Gather && c.op != coll.Gatherv && c.op != coll.Scatter && c.op != coll.Scatterv)
	var in, out []byte
	switch c.op {
	case coll.Barrier:
		a.Size, a.OwnSize = 0, 0
	case coll.Bcast:
		out = c.element.fill(c.blockElems, rank)
		m.wantOut = c.element.fill(c.blockElems, c.root)
	case coll.Reduce, coll.Allreduce, coll.Scan, coll.Exscan:
		in = c.element.fill(c.blockElems, rank)
		upTo := c.memberCount
		switch c.op {
		case coll.Scan:
			upTo = rank + 1
		case coll.Exscan:
			upTo = rank
		}
		if c.op != coll.Reduce || rank == c.root {
			out = slices.Repeat([]byte{0xEE}, a.Size)
			if a.IsInPlace {
				out = in
			}
			if m.wantOut = bytes.Clone(out); upTo > 0 {
				m.wantOut = c.element.reduceAll(upTo, func(r int) []byte { return c.element.fill(c.blockElems, r) })
			}
		}
	default:
		in, out = c.blocks(m)
	}
	if a.IsInPlace {
		out, in = bytes.Clone(out), nil
	}
	m.Buffers = coll.Buffers{In: in, Out: out}
	m.wantIn = bytes.Clone(in)
	return m
}

// givesBlocks reports whether a rank has a block for each rank.
func (c call) givesBlocks(rank int) bool {
	switch c.op {
	case coll.Scatter, coll.Scatterv:
		return rank == c.root
	}
	return c.op < coll.Gather || c.op >= coll.Alltoall
}

// getsBlocks reports whether a rank gets a block from each rank.
func (c call) getsBlocks(rank int) bool {
	switch c.op {
	case coll.Gather, coll.Gatherv:
		return rank == c.root
	}
	return c.op >= coll.Allgather
}

// hasVectors reports whether the blocks of the operation have different sizes.
func (c call) hasVectors() bool {
	return slices.Contains([]coll.Operation{coll.Gatherv, coll.Scatterv, coll.Allgatherv, coll.Alltoallv, coll.ReduceScatter}, c.op)
}

// layout returns sizes and offsets of blocks with size(rank) elements, and their total size.
func (c call) layout(size func(rank int) int) (sizes, at []int, total int) {
	for rank := range c.memberCount {
		sizes = append(sizes, size(rank)*c.element.size)
	}
	if c.hasVectors() {
		at, total = c.placeBlocks(sizes)
		return sizes, at, total
	}
	for _, n := range sizes {
		at = append(at, total)
		total += n
	}
	return sizes, at, total
}

// blocks allocates the memory of operations on several blocks.
func (c call) blocks(m *member) (in, out []byte) {
	a, rank, v := &m.args, m.Rank, &coll.Vectors{}
	gives, gets, differ := c.givesBlocks(rank), c.getsBlocks(rank), c.hasVectors()
	var total int
	var sendAt, recvAt []int
	if gives {
		v.SendCounts, sendAt, total = c.layout(func(other int) int { return c.elementCount(rank, other) })
		v.SendOffsets = sendAt
		in = writeBlocks(sendAt, total, func(other int) []byte { return c.block(rank, other) })
		if c.op == coll.ReduceScatter {
			a.Size = total
		}
	} else {
		in = c.block(rank, 0)
		a.OwnSize = len(in)
	}
	if gets {
		v.RecvCounts, recvAt, total = c.layout(func(other int) int { return c.elementCount(other, rank) })
		v.RecvOffsets = recvAt
		out = writeBlocks(recvAt, total, func(other int) []byte { return slices.Repeat([]byte{0xEE}, v.RecvCounts[other]) })
		from := func(other int) []byte {
			if c.op < coll.Alltoall {
				return c.block(other, 0)
			}
			return c.block(other, rank)
		}
		if m.wantOut = writeBlocks(recvAt, total, from); c.op == coll.Allgatherv {
			a.Size = 0
			for _, n := range v.RecvCounts {
				a.Size += n
			}
		}
	}
	switch c.op {
	case coll.ReduceScatter, coll.ReduceScatterBlock:
		m.wantOut = c.element.reduceAll(c.memberCount, func(r int) []byte { return c.block(r, rank) })
		out = slices.Repeat([]byte{0xEE}, len(m.wantOut))
		a.OwnSize = len(out)
	case coll.Scatter, coll.Scatterv:
		m.wantOut = c.block(c.root, rank)
		out = slices.Repeat([]byte{0xEE}, len(m.wantOut))
		a.OwnSize = len(out)
		if rank != c.root {
			in = nil
		}
	}
	if c.op == coll.Gatherv || c.op == coll.Scatterv || c.op == coll.Alltoallv {
		a.Size = 0
	}
	if a.IsInPlace {
		switch {
		case !gets: // The result replaces the input, if there is one.
			out = in
			if c.op == coll.Scatter || c.op == coll.Scatterv {
				m.wantOut = bytes.Clone(in)
			}
		case !gives:
			copy(out[recvAt[rank]:], in)
		default: // The block for a rank is at the offset of the block from it.
			for other := range c.memberCount {
				copy(out[recvAt[other]:], c.block(rank, other))
			}
			v.SendCounts, v.SendOffsets = nil, nil
		}
	}
	if differ {
		a.Vectors = v
	}
	return in, out
}

// plan calls the algorithm for the member's schedule, and checks the schedule alone.
func (m *member) plan(a *coll.Algorithm) error {
	m.schedule.Reset()
	a.Plan(&m.schedule, m.Member, &m.args)
	m.Temp = make([]byte, m.schedule.Temp)
	poison(m.Temp)
	if err := checkSchedule(&m.schedule, &m.Buffers); err != nil {
		return fmt.Errorf("rank %d: %w", m.Rank, err)
	}
	return nil
}

// check compares the memory after the call.
func (m *member) check() error {
	if err := kittest.Differ(m.In, m.wantIn); err != nil {
		return fmt.Errorf("rank %d: input modified: %w", m.Rank, err)
	}
	if err := kittest.Differ(m.Out[:len(m.wantOut)], m.wantOut); err != nil {
		return fmt.Errorf("rank %d: wrong result: %w", m.Rank, err)
	}
	return nil
}
