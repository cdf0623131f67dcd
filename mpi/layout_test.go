package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/mpi"
)

// places returns the offsets of a layout's bytes in the order of the message.
func places(blocks []mpi.Block) (at []int) {
	for _, b := range blocks {
		for i := range b.Bytes {
			at = append(at, b.Offset+i)
		}
	}
	return at
}

func TestLayout_Bytes_MatchLoop(t *testing.T) {
	_, c := singleton(t)
	rapid.Check(t, func(t *rapid.T) {
		var blocks []mpi.Block
		var l mpi.Layout
		if rapid.Bool().Draw(t, "vector") {
			count, size := rapid.IntRange(0, 40).Draw(t, "count"), rapid.IntRange(0, 300).Draw(t, "size")
			stride := size + rapid.IntRange(0, 50).Draw(t, "gap")
			l = mpi.Vector(count, size, stride)
			for i := range count {
				blocks = append(blocks, mpi.Block{Offset: i * stride, Bytes: size})
			}
		} else {
			end := 0
			for range rapid.IntRange(0, 20).Draw(t, "blocks") {
				b := mpi.Block{Offset: end + rapid.IntRange(0, 9).Draw(t, "gap"), Bytes: rapid.IntRange(0, 700).Draw(t, "size")}
				end = b.Offset + b.Bytes
				blocks = append(blocks, b)
			}
			blocks = rapid.Permutation(blocks).Draw(t, "order")
			l = mpi.Indexed(blocks...)
		}
		at := places(blocks)
		if l.Size() != len(at) {
			t.Fatalf("size %d, want %d", l.Size(), len(at))
		}
		src := pattern(l.Extent()+3, 1)
		want := make([]byte, len(at))
		for i, p := range at {
			want[i] = src[p]
		}
		// Out of a layout into plain memory, through whatever pieces the way has.
		ctx := context.Background()
		got := make([]byte, len(at))
		r, err := c.IsendLayout(src, l, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := c.Recv(ctx, got, 0, 1); err != nil || st.Bytes != len(at) || !bytes.Equal(got, want) {
			t.Fatalf("send: %+v, %v", st, err)
		}
		if _, err := r.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		// The bytes in between do not change.
		dst, expect := bytes.Repeat([]byte{0xEE}, len(src)), bytes.Repeat([]byte{0xEE}, len(src))
		for i, p := range at {
			expect[p] = want[i]
		}
		r, err = c.IrecvLayout(dst, l, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(ctx, want, 0, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(ctx); err != nil || !bytes.Equal(dst, expect) {
			t.Fatalf("receive: %v", err)
		}
	})
}

func TestLayout_BetweenRanks_ArrivesComplete(t *testing.T) { ranks(t, 2, inWorld(layouts)) }

// layouts: columns of a matrix, small ones in cells and large ones in pieces.
func layouts(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	for _, rows := range []int{1, 7, 300, 50_000} {
		const row, from, wide = 48, 5, 13
		column := mpi.Vector(rows, wide, row)
		if c.Rank() == 0 {
			m := pattern(rows*row, 3)
			if err := c.SendLayout(ctx, m[from:], column, 1, 1); err != nil {
				return err
			}
			continue
		}
		got, want, sent := bytes.Repeat([]byte{9}, rows*row), bytes.Repeat([]byte{9}, rows*row), pattern(rows*row, 3)
		for r := range rows {
			copy(want[r*row+from:][:wide], sent[r*row+from:])
		}
		st, err := c.RecvLayout(ctx, got[from:], column, 0, 1)
		if err != nil || st.Bytes != rows*wide || !bytes.Equal(got, want) {
			return fmt.Errorf("%d rows: %+v, %v", rows, st, err)
		}
	}
	// Too short: what fits is there, and nothing beyond it.
	const n = 20_000
	if c.Rank() == 0 {
		return c.Send(ctx, pattern(n, 1), 1, 2)
	}
	got, sent := make([]byte, 2*n), pattern(n, 1)
	st, err := c.RecvLayout(ctx, got, mpi.Vector(100, 1, 2), 0, 2)
	for i, b := range got {
		if want := sent[i/2]; i < 200 && i%2 == 0 && b != want || (i >= 200 || i%2 == 1) && b != 0 {
			return fmt.Errorf("truncated: byte %d is %d", i, b)
		}
	}
	return errors.Join(wants("a short layout", err, mpi.ErrTruncate), must(st.Bytes == n, "%+v", st))
}

func TestLayout_Invalid_ReturnsError(t *testing.T) {
	_, c := singleton(t)
	buf := make([]byte, 100)
	for name, l := range map[string]mpi.Layout{
		"negative count":   mpi.Vector(-1, 1, 1),
		"negative block":   mpi.Vector(1, -1, 1),
		"negative stride":  mpi.Vector(2, 1, -1),
		"endless stride":   mpi.Vector(3, 1, math.MaxInt),
		"endless blocks":   mpi.Vector(math.MaxInt, math.MaxInt, 1),
		"endless size":     mpi.Vector(5, math.MaxInt/4, 0),
		"negative offset":  mpi.Indexed(mpi.Block{Offset: -1, Bytes: 1}),
		"negative bytes":   mpi.Indexed(mpi.Block{Offset: 0, Bytes: -1}),
		"block beyond all": mpi.Indexed(mpi.Block{Offset: math.MaxInt, Bytes: 1}),
	} {
		if err := c.SendLayout(t.Context(), buf, l, 0, 0); !errors.Is(err, mpi.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
		if l.Size() != 0 || l.Extent() != 0 {
			t.Errorf("%s: size %d, extent %d", name, l.Size(), l.Extent())
		}
	}
	for name, l := range map[string]mpi.Layout{
		"vector":  mpi.Vector(2, 50, 51),
		"indexed": mpi.Indexed(mpi.Block{Offset: 100, Bytes: 1}),
		"huge":    mpi.Vector(2, 1, math.MaxInt-1),
	} {
		if err := c.SendLayout(t.Context(), buf, l, 0, 0); !errors.Is(err, mpi.ErrTruncate) {
			t.Errorf("%s beyond the buffer: %v", name, err)
		}
		if _, err := c.IrecvLayout(buf, l, 0, 0); !errors.Is(err, mpi.ErrTruncate) {
			t.Errorf("receive of %s beyond the buffer: %v", name, err)
		}
	}
	for name, l := range map[string]mpi.Layout{
		"vector":  mpi.Vector(3, 4, 3),
		"same":    mpi.Vector(2, 4, 0),
		"indexed": mpi.Indexed(mpi.Block{Offset: 8, Bytes: 4}, mpi.Block{Offset: 20, Bytes: 1}, mpi.Block{Offset: 5, Bytes: 4}),
	} {
		if _, err := c.RecvLayout(t.Context(), buf, l, 0, 0); !errors.Is(err, mpi.ErrUnsupported) {
			t.Errorf("receive into overlapping %s: %v", name, err)
		}
		r, err := c.IsendLayout(buf, l, 0, 0) // sends may overlap
		if err != nil {
			t.Fatal(err)
		}
		if st, err := c.Recv(t.Context(), make([]byte, 100), 0, 0); err != nil || st.Bytes != l.Size() {
			t.Errorf("send of overlapping %s: %+v, %v", name, st, err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if st, err := c.RecvLayout(t.Context(), nil, mpi.Layout{}, mpi.ProcNull, 0); err != nil || st != null {
		t.Errorf("ProcNull: %+v, %v", st, err)
	}
	if err := c.SendLayout(t.Context(), buf, mpi.Vector(1, 1, 1), 3, 0); !errors.Is(err, mpi.ErrRank) {
		t.Errorf("rank: %v", err)
	}
}
