package mpi_test

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

// vector is form for blocks that differ. counts are those of members with the root.
func (x shape[T]) vector(counts []int, block int) (f form, err error) {
	c := x.c
	n, me, root := c.Size(), c.Rank(), x.s.Root%c.Size()
	atRoot, inPlace := me == root, x.s.InPlace
	if x.usesLayouts() {
		return x.layoutVector(counts, block)
	}
	displs, room := x.places(counts)
	var send, recv []T
	switch x.s.Kind {
	case "gatherv":
		if !atRoot || !inPlace {
			send = x.given(counts[me])
		}
		if atRoot {
			recv = x.buffer(room, inPlace, true)
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Gatherv(ctx, c, send, recv, counts, displs, root) }, func() (mpi.Request, error) { return mpi.Igatherv(c, send, recv, counts, displs, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.GathervInit(ctx, c, send, recv, counts, displs, root)
		}
	case "scatterv":
		if atRoot {
			send = x.given(room)
		}
		if !atRoot || !inPlace {
			recv = x.blank(counts[me])
		}
		f.block, f.start = func(ctx context.Context) error { return mpi.Scatterv(ctx, c, send, counts, displs, recv, root) }, func() (mpi.Request, error) { return mpi.Iscatterv(c, send, counts, displs, recv, root) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.ScattervInit(ctx, c, send, counts, displs, recv, root)
		}
	case "allgatherv":
		if !inPlace {
			send = x.given(counts[me])
		}
		recv = x.buffer(room, inPlace, true)
		f.block, f.start = func(ctx context.Context) error { return mpi.Allgatherv(ctx, c, send, recv, counts, displs) }, func() (mpi.Request, error) { return mpi.Iallgatherv(c, send, recv, counts, displs) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.AllgathervInit(ctx, c, send, recv, counts, displs)
		}
	case "alltoallv":
		out, in := make([]int, n), make([]int, n)
		for rank := range n {
			in[rank], out[rank] = x.count(rank, me, block), x.count(me, rank, block)
		}
		recvDispls, room := x.places(in)
		recv = x.buffer(room, inPlace, true)
		var sendDispls []int
		if inPlace {
			out = nil
		} else {
			sendDispls, room = x.places(out)
			send = x.given(room)
		}
		f.block = func(ctx context.Context) error {
			return mpi.Alltoallv(ctx, c, send, out, sendDispls, recv, in, recvDispls)
		}
		f.start = func() (mpi.Request, error) { return mpi.Ialltoallv(c, send, out, sendDispls, recv, in, recvDispls) }
		f.init = func(ctx context.Context) (*mpi.Persistent, error) {
			return mpi.AlltoallvInit(ctx, c, send, out, sendDispls, recv, in, recvDispls)
		}
	default:
		return f, fmt.Errorf("no step %q", x.s.Kind)
	}
	f.see = x.see
	return f, nil
}
