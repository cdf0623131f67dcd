package mpi_test

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/mpi"
)

// usesLayouts reports whether the member makes its call with layouts. In one call some members do, and others do not.
func (x *shape[T]) usesLayouts() bool { return (x.s.Vary/7+x.world)%3 == 0 }

// layoutsOf returns a layout for each block, in two pieces, so that the block is packed.
func layoutsOf[T any](counts, displs []int) []mpi.Layout {
	elem, end := mem.Size[T](), 0
	layouts := make([]mpi.Layout, len(counts))
	for i, n := range counts {
		if displs != nil {
			end = displs[i]
		}
		layouts[i] = mpi.Indexed(mpi.Block{Offset: end * elem, Bytes: n * elem / 2}, mpi.Block{Offset: end*elem + n*elem/2, Bytes: n*elem - n*elem/2})
		end += n
	}
	return layouts
}

// layoutBcast is the form of a bcast with a layout.
func (x shape[T]) layoutBcast(recv []T, root int) (form, error) {
	c, buf, l := x.c, mem.Bytes(recv), layoutsOf[T]([]int{len(recv)}, nil)[0]
	return form{
		block: func(ctx context.Context) error { return mpi.BcastLayout(ctx, c, buf, l, root) },
		start: func() (mpi.Request, error) { return mpi.IbcastLayout(c, buf, l, root) },
		init:  func(ctx context.Context) (*mpi.Persistent, error) { return mpi.BcastLayoutInit(ctx, c, buf, l, root) },
		see:   x.see,
	}, nil
}

// layoutVector is vector with layouts in place of counts and displacements.
func (x shape[T]) layoutVector(counts []int, block int) (f form, err error) {
	c := x.c
	n, me, root := c.Size(), c.Rank(), x.s.Root%c.Size()
	atRoot, inPlace := me == root, x.s.InPlace
	displs, room := x.places(counts)
	all, one := layoutsOf[T](counts, displs), layoutsOf[T](counts[me:me+1], nil)[0]
	var send, recv []byte
	switch x.s.Kind {
	case "gatherv":
		if !atRoot || !inPlace {
			send = mem.Bytes(x.given(counts[me]))
		}
		if atRoot {
			recv = mem.Bytes(x.buffer(room, inPlace, true))
		}
		f.block = func(ctx context.Context) error { return mpi.GatherLayout(ctx, c, send, one, recv, all, root) }
		f.start = func() (mpi.Request, error) { return mpi.IgatherLayout(c, send, one, recv, all, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.GatherLayoutInit(ctx, c, send, one, recv, all, root)
		}
	case "scatterv":
		if atRoot {
			send = mem.Bytes(x.given(room))
		}
		if !atRoot || !inPlace {
			recv = mem.Bytes(x.blank(counts[me]))
		}
		f.block = func(ctx context.Context) error { return mpi.ScatterLayout(ctx, c, send, all, recv, one, root) }
		f.start = func() (mpi.Request, error) { return mpi.IscatterLayout(c, send, all, recv, one, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.ScatterLayoutInit(ctx, c, send, all, recv, one, root)
		}
	case "allgatherv":
		if !inPlace {
			send = mem.Bytes(x.given(counts[me]))
		}
		recv = mem.Bytes(x.buffer(room, inPlace, true))
		f.block = func(ctx context.Context) error { return mpi.AllgatherLayout(ctx, c, send, one, recv, all) }
		f.start = func() (mpi.Request, error) { return mpi.IallgatherLayout(c, send, one, recv, all) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.AllgatherLayoutInit(ctx, c, send, one, recv, all)
		}
	case "alltoallv":
		out, in := make([]int, n), make([]int, n)
		for rank := range n {
			in[rank], out[rank] = x.count(rank, me, block), x.count(me, rank, block)
		}
		recvDispls, room := x.places(in)
		to, from := []mpi.Layout(nil), layoutsOf[T](in, recvDispls)
		recv = mem.Bytes(x.buffer(room, inPlace, true))
		if !inPlace {
			sendDispls, room := x.places(out)
			to, send = layoutsOf[T](out, sendDispls), mem.Bytes(x.given(room))
		}
		f.block = func(ctx context.Context) error { return mpi.Alltoallw(ctx, c, send, to, recv, from) }
		f.start = func() (mpi.Request, error) { return mpi.Ialltoallw(c, send, to, recv, from) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.AlltoallwInit(ctx, c, send, to, recv, from)
		}
	default:
		return f, fmt.Errorf("no step %q", x.s.Kind)
	}
	f.see = x.see
	return f, nil
}
