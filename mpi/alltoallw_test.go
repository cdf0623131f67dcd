package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/mpi"
)

func TestAlltoallw_ColumnsToRows_TransposesAMatrix(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(3, params).Run(t, transpose)
		})
	}
}

// transpose sends column i of a matrix to rank i, which stores it as row me.
func transpose(ctx context.Context, c *mpi.Comm) error {
	const elem = 4
	n, me := c.Size(), c.Rank()
	in, out := make([]int32, n*n), slices.Repeat([]int32{-1}, n*n+1)
	columns, rows := make([]mpi.Layout, n), make([]mpi.Layout, n)
	for i := range in {
		in[i] = int32(1000*me + i)
	}
	for i := range n {
		columns[i] = mpi.Vector(n, elem, n*elem).At(i * elem)
		rows[i] = mpi.Vector(1, n*elem, 0).At(i * n * elem)
	}
	if err := mpi.Alltoallw(ctx, c, mem.Bytes(in), columns, mem.Bytes(out), rows); err != nil {
		return err
	}
	for from := range n {
		for i := range n {
			if got, want := out[from*n+i], int32(1000*from+i*n+me); got != want {
				return fmt.Errorf("element %d from rank %d: %d, want %d", i, from, got, want)
			}
		}
	}
	// In place, the column of a rank is replaced by the column that comes from there.
	if err := mpi.Alltoallw(ctx, c, nil, nil, mem.Bytes(in), columns); err != nil {
		return err
	}
	for from := range n {
		for i := range n {
			if got, want := in[i*n+from], int32(1000*from+i*n+me); got != want {
				return fmt.Errorf("in place, element %d from rank %d: %d, want %d", i, from, got, want)
			}
		}
	}
	overlap := slices.Clone(columns)
	overlap[1] = mpi.Vector(2, 8, 4)
	far := slices.Clone(columns)
	far[0] = far[0].At(1 << 20)
	negative := slices.Clone(columns)
	negative[0] = negative[0].At(-elem)
	b := mem.Bytes(in)
	return errors.Join(must(out[n*n] == -1, "the memory behind the layouts was written"),
		wants("too few layouts", mpi.Alltoallw(ctx, c, b, columns[:n-1], b, columns), mpi.ErrRank),
		wants("a layout beyond the buffer", mpi.Alltoallw(ctx, c, b, far, b, columns), mpi.ErrTruncate),
		wants("a negative offset", mpi.Alltoallw(ctx, c, b, negative, b, columns), mpi.ErrUnsupported),
		wants("blocks that overlap", mpi.Alltoallw(ctx, c, b, columns, b, overlap), mpi.ErrUnsupported),
		mpi.Alltoallw(ctx, c, nil, make([]mpi.Layout, n), nil, make([]mpi.Layout, n)), mpi.Barrier(ctx, c))
}

func TestLayoutAt_Offset_ShiftsSendsAndReceives(t *testing.T) {
	_, c := singleton(t)
	l := mpi.Indexed(mpi.Block{Offset: 2, Bytes: 1}, mpi.Block{Offset: 0, Bytes: 1}).At(3)
	if l.Size() != 2 || l.Extent() != 6 {
		t.Errorf("size %d, extent %d", l.Size(), l.Extent())
	}
	if err := c.SendLayout(t.Context(), []byte("abcdef"), l, 0, 1); err != nil {
		t.Fatal(err)
	}
	got := []byte("......")
	if _, err := c.RecvLayout(t.Context(), got, mpi.Vector(1, 2, 0).At(1), 0, 1); err != nil || string(got) != ".fd..." {
		t.Errorf("%q, %v", got, err)
	}
}
