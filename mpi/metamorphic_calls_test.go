package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/mpi"
)

// form is a call in its two forms, and the memory that belongs to its outcome.
type form struct {
	block func(context.Context) error
	// Blocking, in place of block.
	exchange func(context.Context) (mpi.Status, error)
	start    func() (mpi.Request, error)
	// Persistent form, or nil.
	init func(context.Context) (*mpi.Persistent, error)
	see  [][]byte
}

// formOf returns the call of a collective step for a member.
func formOf(seed uint64, me int, c *mpi.Comm, s step) (form, error) {
	switch s.Elem {
	case "byte sum":
		return shape[byte]{seed: seed, world: me, c: c, s: s, op: mpi.Sum[byte]()}.form()
	case "uint64 sum":
		return shape[uint64]{seed: seed, world: me, c: c, s: s, op: mpi.Sum[uint64]()}.form()
	case "int32 max":
		return shape[int32]{seed: seed, world: me, c: c, s: s, op: mpi.Max[int32]()}.form()
	case "byte triangle":
		return shape[[3]byte]{seed: seed, world: me, c: c, s: s, op: each(triangle)}.form()
	case "uint32 affine":
		return shape[[2]uint32]{seed: seed, world: me, c: c, s: s, op: each(affine)}.form()
	}
	return form{}, fmt.Errorf("no type %q", s.Elem)
}

// each is an operation that doesn't commute.
func each[T any](f func(low, high T) T) mpi.Op[T] {
	return mpi.NewOp(func(inout, in []T) {
		for i := range in {
			inout[i] = f(in[i], inout[i])
		}
	}, false)
}

// triangle multiplies triangular matrices, whose diagonals are made odd: with even ones
// products would soon be zero.
func triangle(a, b [3]byte) [3]byte {
	return [3]byte{(a[0] | 1) * (b[0] | 1), (a[0]|1)*b[1] + a[1]*(b[2]|1), (a[2] | 1) * (b[2] | 1)}
}

// affine composes functions x -> (m|1)*x + k.
func affine(a, b [2]uint32) [2]uint32 {
	return [2]uint32{(a[0] | 1) * (b[0] | 1), (a[0]|1)*b[1] + a[1]}
}

// shape is a step of one member, with elements of type T.
type shape[T any] struct {
	seed  uint64
	world int // the member's rank among all: what it sends is its own
	c     *mpi.Comm
	s     step
	op    mpi.Op[T]
	see   [][]byte
}

// buffer returns room for n elements. The one behind belongs to the outcome too: nothing
// may be written there.
func (x *shape[T]) buffer(n int, given, seen bool) []T {
	all := make([]T, n+1)
	b := mem.Bytes(all)
	fill(b, 0, 0, -1)
	if given {
		fill(mem.Bytes(all[:n]), x.seed, x.s.ID, x.world)
	}
	if seen {
		x.see = append(x.see, b)
	} else {
		x.see = append(x.see, mem.Bytes(all[n:]))
	}
	return all[:n:n]
}

func (x *shape[T]) given(n int) []T { return x.buffer(n, true, true) }
func (x *shape[T]) blank(n int) []T { return x.buffer(n, false, true) }

// fill writes the input of a rank in a step. For rank -1 it writes 0xee.
func fill(b []byte, seed uint64, id, rank int) {
	rng := rand.NewPCG(seed, uint64(id)<<16|uint64(rank&0xffff))
	for i := 0; i < len(b); {
		v := uint64(0xeeeeeeeeeeeeeeee)
		if rank >= 0 {
			v = rng.Uint64()
		}
		for range 8 {
			if i < len(b) {
				b[i], v, i = byte(v), v>>8, i+1
			}
		}
	}
}

// count is how many elements go from one member to another where blocks differ: some are
// none. It is the same in both directions.
func (x *shape[T]) count(from, to, block int) int {
	return block * ((from + to + from*to + x.s.Vary) % 4) / 2
}

// places returns displacements of blocks, and the room that they need: nil, or the last
// block first and with gaps between.
func (x *shape[T]) places(counts []int) (displs []int, room int) {
	if x.s.Vary%3 == 0 {
		for _, n := range counts {
			room += n
		}
		return nil, room
	}
	displs = make([]int, len(counts))
	for i := len(counts) - 1; i >= 0; i-- {
		displs[i] = room
		room += counts[i] + x.s.Vary%5
	}
	return displs, room
}

func (x shape[T]) form() (form, error) {
	c, op := x.c, x.op
	var none T
	n, me, root := c.Size(), c.Rank(), x.s.Root%c.Size()
	block := x.s.Bytes / max(1, len(mem.Bytes([]T{none})))
	atRoot, inPlace := me == root, x.s.InPlace
	if kind, isAmong := strings.CutPrefix(x.s.Kind, "neighbor_"); isAmong {
		return x.neighbors(kind, block)
	}
	counts := make([]int, n)
	for rank := range counts {
		counts[rank] = x.count(rank, root, block)
	}
	var send, recv []T
	f := form{}
	switch x.s.Kind {
	case "barrier":
		f.block, f.start = func(ctx context.Context) error { return mpi.Barrier(ctx, c) }, func() (mpi.Request, error) { return mpi.Ibarrier(c) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.BarrierInit(ctx, c) }
	case "bcast":
		recv = x.buffer(block, atRoot, true)
		if x.usesLayouts() {
			return x.layoutBcast(recv, root)
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Bcast(ctx, c, recv, root) }, func() (mpi.Request, error) { return mpi.Ibcast(c, recv, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.BcastInit(ctx, c, recv, root) }
	case "reduce":
		if inPlace && atRoot {
			recv = x.given(block)
		} else {
			send, recv = x.given(block), x.blank(block)
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Reduce(ctx, c, send, recv, op, root) }, func() (mpi.Request, error) { return mpi.Ireduce(c, send, recv, op, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.ReduceInit(ctx, c, send, recv, op, root)
		}
	case "allreduce", "scan", "exscan":
		if inPlace {
			recv = x.given(block)
		} else {
			send, recv = x.given(block), x.blank(block)
		}
		switch x.s.Kind {
		case "allreduce":
			f.block, f.start = func(ctx context.Context) error { return mpi.Allreduce(ctx, c, send, recv, op) }, func() (mpi.Request, error) { return mpi.Iallreduce(c, send, recv, op) }
			f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.AllreduceInit(ctx, c, send, recv, op) }
		case "scan":
			f.block, f.start = func(ctx context.Context) error { return mpi.Scan(ctx, c, send, recv, op) }, func() (mpi.Request, error) { return mpi.Iscan(c, send, recv, op) }
			f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.ScanInit(ctx, c, send, recv, op) }
		case "exscan":
			f.block, f.start = func(ctx context.Context) error { return mpi.Exscan(ctx, c, send, recv, op) }, func() (mpi.Request, error) { return mpi.Iexscan(c, send, recv, op) }
			f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.ExscanInit(ctx, c, send, recv, op) }
		}
	case "reduce_scatter_block":
		send, recv = x.parts(n*block, block)
		f.block, f.start = func(ctx context.Context) error { return mpi.ReduceScatterBlock(ctx, c, send, recv, op) }, func() (mpi.Request, error) { return mpi.IreduceScatterBlock(c, send, recv, op) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.ReduceScatterBlockInit(ctx, c, send, recv, op)
		}
	case "reduce_scatter":
		total := 0
		for _, k := range counts {
			total += k
		}
		send, recv = x.parts(total, counts[me])
		f.block, f.start = func(ctx context.Context) error { return mpi.ReduceScatter(ctx, c, send, recv, counts, op) }, func() (mpi.Request, error) { return mpi.IreduceScatter(c, send, recv, counts, op) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.ReduceScatterInit(ctx, c, send, recv, counts, op)
		}
	case "gather":
		if atRoot && inPlace {
			recv = x.given(n * block)
		} else {
			send = x.given(block)
			if atRoot {
				recv = x.blank(n * block)
			}
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Gather(ctx, c, send, recv, root) }, func() (mpi.Request, error) { return mpi.Igather(c, send, recv, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.GatherInit(ctx, c, send, recv, root) }
	case "scatter":
		if atRoot {
			send = x.given(n * block)
		}
		if !atRoot || !inPlace {
			recv = x.blank(block)
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Scatter(ctx, c, send, recv, root) }, func() (mpi.Request, error) { return mpi.Iscatter(c, send, recv, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.ScatterInit(ctx, c, send, recv, root) }
	case "allgather":
		if inPlace {
			recv = x.given(n * block)
		} else {
			send, recv = x.given(block), x.blank(n*block)
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Allgather(ctx, c, send, recv) }, func() (mpi.Request, error) { return mpi.Iallgather(c, send, recv) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.AllgatherInit(ctx, c, send, recv) }
	case "alltoall":
		if inPlace {
			recv = x.given(n * block)
		} else {
			send, recv = x.given(n*block), x.blank(n*block)
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Alltoall(ctx, c, send, recv) }, func() (mpi.Request, error) { return mpi.Ialltoall(c, send, recv) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) { return mpi.AlltoallInit(ctx, c, send, recv) }
	default:
		return x.vector(counts, block)
	}
	f.see = x.see
	return f, nil
}

// parts returns the buffers of a reduction of which each member gets a part. In place what
// is behind the part is undefined.
func (x *shape[T]) parts(total, part int) (send, recv []T) {
	if !x.s.InPlace {
		return x.given(total), x.blank(part)
	}
	recv = x.buffer(total, true, false)
	x.see = append(x.see, mem.Bytes(recv[:part]))
	return nil, recv
}
