package mpi_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestNeighbors_Grids_ExchangeBlocks(t *testing.T) {
	for _, n := range []int{1, 2, 4, 6} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, inWorld(neighbors)) })
	}
}

// neighbors exchanges blocks over grids. Both neighbors of a dimension may be one process, or the member itself.
func neighbors(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	for _, x := range []struct {
		free    []int
		periods []bool
	}{{[]int{0}, []bool{true}}, {[]int{0}, nil}, {[]int{0, 1}, []bool{false, true}}, {[]int{0, 0}, []bool{true, true}}, {[]int{1, 1, 0}, []bool{true, true, true}}} {
		dims, err := mpi.Dims(c.Size(), x.free...)
		if err != nil {
			return err
		}
		cart, err := mpi.NewCart(ctx, c, dims, x.periods, false)
		if err != nil {
			return err
		}
		for _, block := range []int{0, 1, 3, 2000} {
			h := halo{cart, block}
			if err := errors.Join(h.gather(ctx), h.exchange(ctx), h.exchangeVectors(ctx)); err != nil {
				return fmt.Errorf("grid %v, %v, blocks of %d: %w", dims, cart.Periods(), block, err)
			}
		}
		if err := cart.Comm().Close(); err != nil {
			return err
		}
	}
	return nil
}

// halo is an exchange of blocks over a grid.
type halo struct {
	cart  *mpi.Cart
	block int
}

// elementOf is an element of the block from a rank to its neighbor in a direction. Direction 0 is the neighbor before in the first dimension, 1 the
// one behind, and -1 stands for all.
func elementOf(rank, direction, i int) int { return (rank*100+direction+1)*10000 + i }

// from returns the rank of the neighbor in a direction, or ProcNull.
func (h halo) from(direction int) int {
	before, behind, err := h.cart.Shift(direction/2, 1)
	if err != nil {
		panic(err)
	}
	return []int{before, behind}[direction%2]
}

// blockOf returns a block as its sender has it. Blocks of no rank are not written.
func (h halo) blockOf(rank, direction, n int) []int {
	s := make([]int, n)
	for i := range s {
		if s[i] = -1; rank != mpi.ProcNull {
			s[i] = elementOf(rank, direction, i)
		}
	}
	return s
}

// directions returns the number of neighbors.
func (h halo) directions() int { return 2 * len(h.cart.Dims()) }

// inAllForms makes a call in its blocking, its nonblocking and its persistent form, and compares the results.
func inAllForms(ctx context.Context, what string, want []int, block func([]int) error, start func([]int) (mpi.Request, error), init func([]int) (*mpi.Persistent, error)) error {
	got := slices.Repeat([]int{-1}, len(want))
	if err := block(got); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	got = slices.Repeat([]int{-1}, len(want))
	q, err := start(got)
	if err == nil {
		_, err = q.Wait(ctx)
	}
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("nonblocking %s: %v, want %v", what, got, want)
	}
	p, err := init(got)
	if err != nil {
		return err
	}
	for range 2 {
		for i := range got {
			got[i] = -1
		}
		err := p.Start()
		if err == nil {
			_, err = p.Wait(ctx)
		}
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("persistent %s: %v, want %v", what, got, want)
		}
	}
	return p.Free()
}

func (h halo) gather(ctx context.Context) error {
	c, me := h.cart.Comm(), h.cart.Comm().Rank()
	send := h.blockOf(me, -1, h.block)
	var equal, reversed []int
	counts, displs := make([]int, h.directions()), make([]int, h.directions())
	for d := h.directions() - 1; d >= 0; d-- {
		counts[d], displs[d] = h.block, len(reversed)
		reversed = append(reversed, h.blockOf(h.from(d), -1, h.block)...)
	}
	for d := range h.directions() {
		equal = append(equal, h.blockOf(h.from(d), -1, h.block)...)
	}
	return errors.Join(
		inAllForms(ctx, "neighbor allgather", equal, func(b []int) error { return mpi.NeighborAllgather(ctx, c, send, b) },
			func(b []int) (mpi.Request, error) { return mpi.IneighborAllgather(c, send, b) },
			func(b []int) (*mpi.Persistent, error) { return mpi.NeighborAllgatherInit(ctx, c, send, b) }),
		inAllForms(ctx, "neighbor allgatherv", reversed, func(b []int) error { return mpi.NeighborAllgatherv(ctx, c, send, b, counts, displs) },
			func(b []int) (mpi.Request, error) { return mpi.IneighborAllgatherv(c, send, b, counts, displs) },
			func(b []int) (*mpi.Persistent, error) {
				return mpi.NeighborAllgathervInit(ctx, c, send, b, counts, displs)
			}))
}

func (h halo) exchange(ctx context.Context) error {
	c, me := h.cart.Comm(), h.cart.Comm().Rank()
	var send, want []int
	for d := range h.directions() {
		send = append(send, h.blockOf(me, d, h.block)...)
		want = append(want, h.blockOf(h.from(d), d^1, h.block)...) // It is in the opposite direction for the sender.
	}
	return inAllForms(ctx, "neighbor alltoall", want, func(b []int) error { return mpi.NeighborAlltoall(ctx, c, send, b) },
		func(b []int) (mpi.Request, error) { return mpi.IneighborAlltoall(c, send, b) },
		func(b []int) (*mpi.Persistent, error) { return mpi.NeighborAlltoallInit(ctx, c, send, b) })
}

// exchangeVectors sends blocks of lengths that depend on the direction, with gaps between.
func (h halo) exchangeVectors(ctx context.Context) error {
	c, me, n := h.cart.Comm(), h.cart.Comm().Rank(), h.directions()
	var send, want []int
	sendCounts, sendDispls, recvCounts, recvDispls := make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	for d := n - 1; d >= 0; d-- {
		sendCounts[d], sendDispls[d] = d*h.block, len(send)
		send = append(append(send, h.blockOf(me, d, d*h.block)...), 0)
		recvCounts[d], recvDispls[d] = (d^1)*h.block, len(want)
		want = append(append(want, h.blockOf(h.from(d), d^1, (d^1)*h.block)...), -1)
	}
	return inAllForms(ctx, "neighbor alltoallv", want,
		func(b []int) error {
			return mpi.NeighborAlltoallv(ctx, c, send, sendCounts, sendDispls, b, recvCounts, recvDispls)
		}, func(b []int) (mpi.Request, error) {
			return mpi.IneighborAlltoallv(c, send, sendCounts, sendDispls, b, recvCounts, recvDispls)
		}, func(b []int) (*mpi.Persistent, error) {
			return mpi.NeighborAlltoallvInit(ctx, c, send, sendCounts, sendDispls, b, recvCounts, recvDispls)
		})
}

// The communicator works afterwards.
func TestNeighbors_WrongArguments_AreErrorsOfTheCallerAlone(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		cart, err := mpi.NewCart(ctx, c, []int{2}, []bool{true}, false)
		if err != nil {
			return err
		}
		d, one, two := cart.Comm(), []int{1}, []int{1, 2}
		ones := []int{1, 1}
		var wrong []error
		if c.Rank() == 1 {
			_, pointers := mpi.IneighborAllgather(d, []*int{nil}, make([]*int, 2))
			wrong = append(wrong,
				wants("result of one block", mpi.NeighborAllgather(ctx, d, one, one), mpi.ErrTruncate),
				wants("one count", mpi.NeighborAllgatherv(ctx, d, one, two, one, nil), mpi.ErrRank),
				wants("blocks that overlap", mpi.NeighborAllgatherv(ctx, d, one, two, ones, []int{0, 0}), mpi.ErrTruncate),
				wants("remainder", mpi.NeighborAlltoall(ctx, d, one, two), mpi.ErrRank),
				wants("short result", mpi.NeighborAlltoall(ctx, d, two, one), mpi.ErrTruncate),
				wants("short send", mpi.NeighborAlltoallv(ctx, d, one, ones, nil, two, ones, nil), mpi.ErrTruncate),
				wants("counts of one block", mpi.NeighborAlltoallv(ctx, d, two, ones, nil, two, one, nil), mpi.ErrRank),
				wants("pointers", pointers, mpi.ErrType))
		}
		got := make([]int, 2)
		wrong = append(wrong, mpi.NeighborAlltoall(ctx, d, []int{10 * c.Rank(), 10*c.Rank() + 1}, got))
		other := 10 * (1 - c.Rank())
		wrong = append(wrong, must(slices.Equal(got, []int{other + 1, other}), "received %v", got), d.Close())
		return errors.Join(wrong...)
	})
}

// A source sends a longer block than the member receives.
func TestNeighbors_OtherLength_BreaksTheCollectives(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		cart, err := mpi.NewCart(ctx, c, []int{2}, []bool{true}, false)
		if err != nil {
			return err
		}
		n := 1 + c.Rank()
		err = mpi.NeighborAlltoall(ctx, cart.Comm(), make([]int, 2*n), make([]int, 2*n))
		if err == nil {
			return errors.New("blocks of 1 and 2 elements fit together")
		}
		return errors.Join(wants("the next one", mpi.Barrier(ctx, cart.Comm()), mpi.ErrBroken), cart.Comm().Close())
	})
}

// Lengths may differ with coll.check.
func TestNeighbors_Checked_NamesMembersThatCallOthers(t *testing.T) {
	job := mpitest.Job{Size: 3, Params: map[string]string{"coll.check": "true"}}
	job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		g, err := mpi.NewAdjacentGraph(ctx, c, mpi.Neighbors{Sources: []int{c.Rank()}, Destinations: []int{c.Rank()}})
		if err != nil {
			return err
		}
		d, mine, got := g.Comm(), make([]int, c.Rank()+1), make([]int, c.Rank()+1)
		if err := mpi.NeighborAlltoall(ctx, d, mine, got); err != nil {
			return err
		}
		if c.Rank() == 0 {
			err = mpi.NeighborAllgather(ctx, d, mine, got)
		} else {
			err = mpi.NeighborAlltoall(ctx, d, mine, got)
		}
		for _, want := range []string{`rank 0: "neighbor_allgather, `, `ranks 1, 2: "neighbor_alltoall, `} {
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("different calls: %w; want %s", err, want)
			}
		}
		return errors.Join(mpi.Barrier(ctx, d), d.Close())
	})
}

// The collective ends in all survivors, neighbors of the rank or not.
func TestNeighbors_MemberDies_ReturnsErrProcFailed(t *testing.T) {
	mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
		cart, err := mpi.NewCart(ctx, c, []int{4}, nil, false)
		if err != nil {
			return err
		}
		d := cart.Comm()
		if c.Rank() == 3 {
			for rank := range 3 {
				if _, err := c.Recv(ctx, nil, rank, 0); err != nil {
					return err
				}
			}
			mpitest.Die(ctx)
		}
		if err := c.Send(ctx, nil, 3, 0); err != nil {
			return err
		}
		send, recv := make([]int, 2), make([]int, 2)
		for err == nil { // Members that are no neighbors may complete a few.
			err = mpi.NeighborAlltoall(ctx, d, send, recv)
		}
		if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrBroken) {
			return fmt.Errorf("neighbor alltoall: %w", err)
		}
		s, err := d.Shrink(ctx)
		if err != nil {
			return err
		}
		_, isCart := s.Cart()
		return errors.Join(must(!isCart && s.Size() == 3, "the result of Shrink has %d members; a grid: %t", s.Size(), isCart), s.Close(), d.Close())
	})
}

func TestNeighbors_Revoked_ReturnsErrRevoked(t *testing.T) {
	mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		cart, err := mpi.NewCart(ctx, c, []int{3}, []bool{true}, false)
		if err != nil {
			return err
		}
		d := cart.Comm()
		send, recv := make([]int, 2), make([]int, 2)
		if c.Rank() == 0 {
			err = d.Revoke()
		} else {
			err = wants("neighbor alltoall", mpi.NeighborAlltoall(ctx, d, send, recv), mpi.ErrRevoked)
		}
		if err != nil {
			return err
		}
		q, err := mpi.IneighborAlltoall(d, send, recv)
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return errors.Join(wants("nonblocking", err, mpi.ErrRevoked), d.Close())
	})
}

// TestNeighbors_LoopOfEqualCalls_AllocatesNothing in the blocking forms.
func TestNeighbors_LoopOfEqualCalls_AllocatesNothing(t *testing.T) {
	mpitest.Run(t, 3, func(_ context.Context, c *mpi.Comm) error {
		ctx := context.Background()
		cart, err := mpi.NewCart(ctx, c, []int{3}, []bool{true}, false)
		if err != nil {
			return err
		}
		d, send, recv, counts := cart.Comm(), make([]int, 8), make([]int, 8), []int{4, 4}
		round := func() {
			for _, e := range []error{
				mpi.NeighborAllgather(ctx, d, send[:4], recv), mpi.NeighborAllgatherv(ctx, d, send[:4], recv, counts, nil),
				mpi.NeighborAlltoall(ctx, d, send, recv), mpi.NeighborAlltoallv(ctx, d, send, counts, nil, recv, counts, nil),
			} {
				err = cmp.Or(err, e)
			}
		}
		for range 50 {
			round()
		}
		const rounds = 2000 // Far more than the allocations of queues that still grow.
		if c.Rank() == 0 {  // The allocations of the other ranks count, too.
			if n := testing.AllocsPerRun(rounds, round); n >= 1 {
				t.Errorf("%v allocations in a round", n)
			}
		} else {
			for range rounds + 1 {
				round()
			}
		}
		return errors.Join(err, mpi.Barrier(ctx, d), d.Close()) // No rank closes while another one measures.
	})
}
