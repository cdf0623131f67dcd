package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestCart_Grids_HaveNeighborsSubgridsAndDuplicates(t *testing.T) {
	for _, n := range []int{1, 2, 6, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, inWorld(carts)) })
	}
}

// carts creates grids of all members, and uses them.
func carts(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	dims, err := mpi.Dims(c.Size(), 0, 0, 1)
	if err != nil {
		return err
	}
	key := mpi.NewKey(mpi.KeyHooks[int]{Copy: func(v int) (int, bool) { return v, true }})
	if err := mpi.SetAttr(c, key, 1); err != nil {
		return err
	}
	for _, periods := range [][]bool{nil, {true, false, true}, {true, true, true}} {
		cart, err := mpi.NewCart(ctx, c, dims, periods, true)
		if err != nil {
			return err
		}
		d := cart.Comm()
		if _, has := mpi.Attr(d, key); has || d.Compare(c) != mpi.Congruent {
			return fmt.Errorf("the grid's communicator has an attribute: %t; compares %v", has, d.Compare(c))
		}
		if err := errors.Join(describesCart(cart, dims, periods), duplicates(ctx, cart), subgrids(ctx, cart)); err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	_, isCart := c.Cart()
	return must(!isCart, "a communicator without a grid returns one")
}

// describesCart checks the geometry of a grid against a list of its cells.
func describesCart(cart *mpi.Cart, dims []int, periods []bool) error {
	if periods == nil {
		periods = make([]bool, len(dims))
	}
	if !slices.Equal(cart.Dims(), dims) || !slices.Equal(cart.Periods(), periods) {
		return fmt.Errorf("a grid of %v, %v has %v, %v", dims, periods, cart.Dims(), cart.Periods())
	}
	rank := 0
	for x := range dims[0] {
		for y := range dims[1] {
			coords, err := cart.Coords(rank)
			at, err2 := cart.Rank(x, y, 0)
			if err != nil || err2 != nil || at != rank || !slices.Equal(coords, []int{x, y, 0}) {
				return fmt.Errorf("rank %d is at %v, and the rank at %d, %d is %d: %w", rank, coords, x, y, at, errors.Join(err, err2))
			}
			rank++
		}
	}
	wrapped, err := cart.Rank(-1, 0, 0)
	if periods[0] {
		return must(err == nil && wrapped == rank-dims[1], "the rank before the first is %d: %v", wrapped, err)
	}
	return wants("rank outside", err, mpi.ErrRank)
}

// duplicates checks that duplicates have the grid, and send along its dimensions.
func duplicates(ctx context.Context, cart *mpi.Cart) error {
	d, err := cart.Comm().Dup(ctx)
	if err != nil {
		return err
	}
	q, err := d.Idup()
	if err != nil {
		return err
	}
	again, err := q.Wait(ctx)
	if err != nil {
		return err
	}
	copied, isCart := again.Cart()
	if !isCart || copied.Comm() != again || !slices.Equal(copied.Dims(), cart.Dims()) {
		return fmt.Errorf("a duplicate has the grid %v", copied)
	}
	for dim := range cart.Dims() {
		source, destination, err := copied.Shift(dim, 1)
		if err != nil {
			return err
		}
		got := []int{-1}
		if _, err := mpi.Sendrecv(ctx, again, []int{again.Rank()}, destination, dim, got, source, dim); err != nil {
			return err
		}
		if source != mpi.ProcNull && got[0] != source {
			return fmt.Errorf("rank %d of dimension %d sends %d", source, dim, got[0])
		}
	}
	return errors.Join(again.Close(), d.Close())
}

// subgrids checks the rows of a grid, and grids without dimensions.
func subgrids(ctx context.Context, cart *mpi.Cart) error {
	coords, err := cart.Coords(cart.Comm().Rank())
	if err != nil {
		return err
	}
	row, err := cart.Sub(ctx, false, true, false)
	if err != nil {
		return err
	}
	all := make([]int, row.Comm().Size())
	if err := mpi.Allgather(ctx, row.Comm(), coords[:1], all); err != nil {
		return err
	}
	if row.Comm().Rank() != coords[1] || !slices.Equal(row.Dims(), cart.Dims()[1:2]) || slices.ContainsFunc(all, func(x int) bool { return x != coords[0] }) {
		return fmt.Errorf("%v is rank %d of a row with %v, of members at %v", coords, row.Comm().Rank(), row.Dims(), all)
	}
	cell, err := cart.Sub(ctx, false, false, false)
	if err != nil {
		return err
	}
	if cell.Comm().Size() != 1 || len(cell.Dims()) != 0 {
		return fmt.Errorf("a grid without dimensions has %d members, %v", cell.Comm().Size(), cell.Dims())
	}
	return errors.Join(cell.Comm().Close(), row.Comm().Close())
}

func TestNewCart_SmallerThanTheCommunicator_OthersGetErrNoComm(t *testing.T) {
	mpitest.Run(t, 5, func(ctx context.Context, c *mpi.Comm) error {
		for _, dims := range [][]int{{2, 2}, {}} { // A grid without dimensions has one cell.
			cart, err := mpi.NewCart(ctx, c, dims, nil, true)
			size := 1
			for _, d := range dims {
				size *= d
			}
			if c.Rank() >= size {
				if err := wants("new cart", err, mpi.ErrNoComm); err != nil {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
			if cart.Comm().Rank() != c.Rank() || cart.Comm().Size() != size {
				return fmt.Errorf("rank %d of %d, in a grid of %v", cart.Comm().Rank(), cart.Comm().Size(), dims)
			}
			if err := cart.Comm().Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Eight ranks are on two nodes in turns. Each node gets half of the grid.
func TestNewCart_Reorder_NeighborsShareTheirNode(t *testing.T) {
	job, done, err := variant{node: inTurns}.job(8)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		for _, reorder := range []bool{false, true} {
			cart, err := mpi.NewCart(ctx, c, []int{4, 2}, []bool{true, true}, reorder)
			if err != nil {
				return err
			}
			node := []int{c.Rank() % 2}
			nodes := make([]int, c.Size())
			if err := mpi.Allgather(ctx, cart.Comm(), node, nodes); err != nil {
				return err
			}
			want := []int{0, 1, 0, 1, 0, 1, 0, 1}
			if reorder {
				want = []int{0, 0, 0, 0, 1, 1, 1, 1}
			}
			if !slices.Equal(nodes, want) {
				return fmt.Errorf("reorder %t: nodes %v, want %v", reorder, nodes, want)
			}
			if err := cart.Comm().Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// The communicator works afterwards.
func TestCart_WrongArguments_AreErrorsOfTheCallerAlone(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		cart, err := mpi.NewCart(ctx, c, []int{2, 1}, nil, false)
		if err != nil {
			return err
		}
		var wrong []error
		topology := func(what string, err error) { wrong = append(wrong, wants(what, err, mpi.ErrTopology)) }
		if c.Rank() == 0 {
			for _, dims := range [][]int{{3}, {0}, {-1, -2}, {1 << 31, 1 << 33}} {
				_, err := mpi.NewCart(ctx, c, dims, nil, false)
				topology(fmt.Sprint("grid of ", dims), err)
			}
			_, err = mpi.NewCart(ctx, c, []int{2}, []bool{true, false}, false)
			topology("two periods for one dimension", err)
			_, err = cart.Rank(0)
			topology("one coordinate", err)
			_, _, err = cart.Shift(2, 1)
			topology("shift of dimension 2", err)
			_, err = cart.Sub(ctx, true)
			topology("sub of one dimension", err)
			for _, rank := range []int{-1, 2} {
				_, err = cart.Coords(rank)
				wrong = append(wrong, wants("coordinates", err, mpi.ErrRank))
			}
			topology("collective without a topology", mpi.NeighborAllgather(ctx, c, []int{1}, nil))
		}
		wrong = append(wrong, mpi.Barrier(ctx, c), mpi.NeighborAllgather(ctx, cart.Comm(), []int{1}, make([]int, 4)), cart.Comm().Close())
		_, err = mpi.NewCart(ctx, cart.Comm(), []int{2}, nil, true)
		wrong = append(wrong, wants("grid of a closed communicator", err, mpi.ErrClosed),
			wants("collective of a closed communicator", mpi.NeighborAllgather(ctx, cart.Comm(), []int{1}, make([]int, 4)), mpi.ErrClosed))
		return errors.Join(wrong...)
	})
}
