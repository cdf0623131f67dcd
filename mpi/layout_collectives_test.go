package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

func TestLayoutCollectives_EachForm_WritesOnlyTheLayout(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(3, params).Run(t, layoutCollectives)
		})
	}
	t.Run("goroutine ranks", func(t *testing.T) {
		_, parent := singleton(t)
		tc, err := mpi.NewThreadComm(t.Context(), parent, 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tc.Run(t.Context(), layoutCollectives), tc.Close()); err != nil {
			t.Error(err)
		}
	})
}

// layoutCollectives has blocks that are unpacked with the engine's lock held, and larger ones that are not.
func layoutCollectives(ctx context.Context, c *mpi.Comm) error {
	for _, n := range []int{1, 7, 30_000} {
		for _, x := range layoutForms(ctx, c, n) {
			if err := x.repeat(ctx, n); err != nil {
				return fmt.Errorf("%s of %d bytes: %w", x.name, n, err)
			}
		}
	}
	return nil
}

// layoutForm is a collective. The block of rank r is the bytes at every third place, from place r on.
type layoutForm struct {
	name string
	// Of this rank, which changes with each call.
	send []byte
	recv []byte
	// Senders of the blocks in recv.
	from  []int
	c     *mpi.Comm
	block func() error
	start func() (mpi.Request, error)
	init  func() (*mpi.Persistent, error)
}

const layoutStride = 3

func layoutForms(ctx context.Context, c *mpi.Comm, n int) []*layoutForm {
	root, me, all := 1, c.Rank(), []int{0, 1, 2}
	one := mpi.Vector(n, 1, layoutStride)
	places := []mpi.Layout{one, one.At(1), one.At(2)}
	form := func(name string, from []int) *layoutForm {
		return &layoutForm{name: name, send: make([]byte, layoutStride*n), recv: make([]byte, layoutStride*n), c: c, from: from}
	}
	atRoot := []int(nil)
	if me == root {
		atRoot = all
	}
	b, g, s, a, w := form("bcast", []int{root}), form("gather", atRoot), form("scatter", []int{root}), form("allgather", all), form("alltoallw", all)
	buf := func(x *layoutForm) []byte {
		if me == root {
			return x.send
		}
		return x.recv
	}
	at := places[root]
	b.block = func() error { return mpi.BcastLayout(ctx, c, buf(b), at, root) }
	b.start = func() (mpi.Request, error) { return mpi.IbcastLayout(c, buf(b), at, root) }
	b.init = func() (*mpi.Persistent, error) { return mpi.BcastLayoutInit(ctx, c, buf(b), at, root) }
	if me == root {
		b.from, b.recv = nil, make([]byte, layoutStride*n)
	}
	g.block = func() error { return mpi.GatherLayout(ctx, c, g.send, one, g.recv, places, root) }
	g.start = func() (mpi.Request, error) { return mpi.IgatherLayout(c, g.send, one, g.recv, places, root) }
	g.init = func() (*mpi.Persistent, error) {
		return mpi.GatherLayoutInit(ctx, c, g.send, one, g.recv, places, root)
	}
	same := []mpi.Layout{one, one, one}
	s.block = func() error { return mpi.ScatterLayout(ctx, c, s.send, same, s.recv, at, root) }
	s.start = func() (mpi.Request, error) { return mpi.IscatterLayout(c, s.send, same, s.recv, at, root) }
	s.init = func() (*mpi.Persistent, error) { return mpi.ScatterLayoutInit(ctx, c, s.send, same, s.recv, at, root) }
	a.block = func() error { return mpi.AllgatherLayout(ctx, c, a.send, one, a.recv, places) }
	a.start = func() (mpi.Request, error) { return mpi.IallgatherLayout(c, a.send, one, a.recv, places) }
	a.init = func() (*mpi.Persistent, error) { return mpi.AllgatherLayoutInit(ctx, c, a.send, one, a.recv, places) }
	w.block = func() error { return mpi.Alltoallw(ctx, c, w.send, same, w.recv, places) }
	w.start = func() (mpi.Request, error) { return mpi.Ialltoallw(c, w.send, same, w.recv, places) }
	w.init = func() (*mpi.Persistent, error) { return mpi.AlltoallwInit(ctx, c, w.send, same, w.recv, places) }
	return []*layoutForm{b, g, s, a, w}
}

// repeat makes the call in its forms, the persistent one twice.
func (x *layoutForm) repeat(ctx context.Context, n int) error {
	var p *mpi.Persistent
	for round := range 4 {
		for i := range x.send {
			x.send[i] = byte(10*(round+1) + x.c.Rank())
		}
		copy(x.recv, bytes.Repeat([]byte{0xee}, len(x.recv)))
		var err error
		switch round {
		case 0:
			err = x.block()
		case 1:
			var q mpi.Request
			if q, err = x.start(); err == nil {
				_, err = q.Wait(ctx)
			}
		default:
			if p == nil {
				p, err = x.init()
			}
			if err == nil {
				err = p.Start()
			}
			if err == nil {
				_, err = p.Wait(ctx)
			}
		}
		if err != nil {
			return err
		}
		for i, got := range x.recv {
			want := byte(0xee)
			for _, rank := range x.from {
				if i%layoutStride == rank {
					want = byte(10*(round+1) + rank)
				}
			}
			if got != want {
				return fmt.Errorf("round %d, place %d: %#x, want %#x", round, i, got, want)
			}
		}
	}
	return p.Free()
}

func TestLayoutCollectives_InPlace_KeepTheOwnBlock(t *testing.T) {
	ranks(t, 3, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		const root = 2
		one := mpi.Vector(2, 1, 3)
		places := []mpi.Layout{one, one.At(1), one.At(2)}
		me := byte(c.Rank())
		all := bytes.Repeat([]byte{'a' + me}, 6)
		if err := mpi.AllgatherLayout(ctx, c, nil, mpi.Layout{}, all, places); err != nil {
			return err
		}
		gathered, send := bytes.Repeat([]byte{'A' + me}, 6), []byte{'A' + me, '-', '-', 'A' + me}
		if c.Rank() == root {
			send = nil
		}
		if err := mpi.GatherLayout(ctx, c, send, one, gathered, places, root); err != nil {
			return err
		}
		parts, mine := []byte("uvwxyz"), []byte("......")
		if c.Rank() == root {
			mine = nil
		}
		if err := mpi.ScatterLayout(ctx, c, parts, places, mine, one.At(1), root); err != nil {
			return err
		}
		errs := []error{must(string(all) == "abcabc", "allgather: %q", all), must(string(parts) == "uvwxyz", "scatter changed its input: %q", parts)}
		if c.Rank() == root {
			errs = append(errs, must(string(gathered) == "ABCABC", "gather: %q", gathered))
		} else {
			want := "." + string(parts[c.Rank()]) + ".." + string(parts[c.Rank()+3]) + "."
			errs = append(errs, must(string(mine) == want, "scatter: %q, want %q", mine, want))
		}
		return errors.Join(errs...)
	}))
}

func TestLayoutCollectives_WrongArguments_AreErrorsOfTheMember(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		buf, one, two := make([]byte, 8), mpi.Vector(2, 1, 2), mpi.Vector(2, 2, 3)
		pair := []mpi.Layout{one, one}
		_, started := mpi.IbcastLayout(c, buf, mpi.Vector(2, 1, 9), 0)
		_, made := mpi.GatherLayoutInit(ctx, c, buf, one, buf, pair[:1], c.Rank())
		return errors.Join(
			wants("root", mpi.BcastLayout(ctx, c, buf, one, 2), mpi.ErrRank),
			wants("a layout beyond the buffer", started, mpi.ErrTruncate),
			wants("too few layouts", made, mpi.ErrRank),
			wants("an own block of another size", mpi.AllgatherLayout(ctx, c, buf, two, buf, pair), mpi.ErrTruncate),
			wants("an own block of another size in scatter", mpi.ScatterLayout(ctx, c, buf, pair, buf, two, c.Rank()), mpi.ErrTruncate),
			wants("blocks that overlap", mpi.AllgatherLayout(ctx, c, buf, one, buf, []mpi.Layout{one, mpi.Vector(2, 2, 1)}), mpi.ErrUnsupported),
			wants("sizes beyond any memory", mpi.AllgatherLayout(ctx, c, buf, mpi.Vector(1<<50, 1, 0), buf, pair), mpi.ErrTruncate),
			wants("no topology", mpi.NeighborAlltoallw(ctx, c, buf, nil, buf, nil), mpi.ErrTopology),
			mpi.Barrier(ctx, c))
	}))
}

// A missing neighbor of a grid has layouts, which are not used.
func TestNeighborAlltoallw_EndOfAGrid_LeavesMemoryOfMissingNeighbors(t *testing.T) {
	ranks(t, 3, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		cart, err := mpi.NewCart(ctx, c, []int{3}, nil, false)
		if err != nil {
			return err
		}
		column := mpi.Vector(2, 1, 2)
		layouts := []mpi.Layout{column, column.At(1)}
		me := byte(c.Rank())
		send, recv := []byte{'a' + me, 'A' + me, 'a' + me, 'A' + me}, []byte("....")
		want := []string{".b.b", "AcAc", "B.B."}[me]
		check := func(what string, err error) error {
			defer copy(recv, "....")
			return errors.Join(err, must(string(recv) == want, "%s: %q, want %q", what, recv, want))
		}
		if err := check("blocking", mpi.NeighborAlltoallw(ctx, cart.Comm(), send, layouts, recv, layouts)); err != nil {
			return err
		}
		q, err := mpi.IneighborAlltoallw(cart.Comm(), send, layouts, recv, layouts)
		if err == nil {
			clear(layouts) // The caller's again.
			_, err = q.Wait(ctx)
		}
		if err := check("nonblocking", err); err != nil {
			return err
		}
		p, err := mpi.NeighborAlltoallwInit(ctx, cart.Comm(), send, []mpi.Layout{column, column.At(1)}, recv, []mpi.Layout{column, column.At(1)})
		if err != nil {
			return err
		}
		for range 2 {
			if err := p.Start(); err != nil {
				return err
			}
			_, err := p.Wait(ctx)
			if err := check("persistent", err); err != nil {
				return err
			}
		}
		return errors.Join(p.Free(), cart.Comm().Close())
	}))
}

func TestLayoutPack_AndUnpack_AreInverse(t *testing.T) {
	l := mpi.Indexed(mpi.Block{Offset: 4, Bytes: 2}, mpi.Block{Offset: 0, Bytes: 1})
	packed, back := []byte("????"), []byte("......")
	if n, err := l.Pack(packed, []byte("abcdef")); n != 3 || err != nil || string(packed) != "efa?" {
		t.Errorf("pack: %d, %q, %v", n, packed, err)
	}
	if n, err := l.Unpack(back, packed); n != 3 || err != nil || string(back) != "a...ef" {
		t.Errorf("unpack: %d, %q, %v", n, back, err)
	}
	_, short := l.Pack(packed[:2], back)
	_, outside := l.Unpack(back[:5], packed)
	_, overlaps := mpi.Vector(2, 2, 1).Unpack(back, packed)
	if err := errors.Join(wants("a short slice", short, mpi.ErrTruncate), wants("a short buffer", outside, mpi.ErrTruncate), wants("overlapping blocks", overlaps, mpi.ErrUnsupported)); err != nil {
		t.Error(err)
	}
	if n, err := (mpi.Layout{}).Pack(nil, nil); n != 0 || err != nil {
		t.Errorf("the empty layout: %d, %v", n, err)
	}
}
