package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestPersistentCollectives_StartedInAnyOrder_Complete(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(3, params).Run(t, persistentCollectives)
		})
	}
	t.Run("goroutine ranks", func(t *testing.T) {
		_, parent := singleton(t)
		tc, err := mpi.NewThreadComm(t.Context(), parent, 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tc.Run(t.Context(), persistentCollectives), tc.Close()); err != nil {
			t.Error(err)
		}
	})
}

// persistentCollectives starts operations in another order in each rank and round. Those that are not freed end with the
// communicator.
func persistentCollectives(ctx context.Context, world *mpi.Comm) error {
	c, err := world.Dup(ctx)
	if err != nil {
		return err
	}
	n, me := c.Size(), c.Rank()
	in, sum, all := []int{0}, []int{0}, make([]int, n*(n+1)/2)
	counts, mine := make([]int, n), make([]int, me+1)
	for i := range counts {
		counts[i] = i + 1
	}
	reduce, err := mpi.AllreduceInit(ctx, c, in, sum, mpi.Sum[int]())
	if err != nil {
		return err
	}
	gather, err := mpi.AllgathervInit(ctx, c, mine, all, counts, nil)
	if err != nil {
		return err
	}
	clear(counts) // The caller's again.
	barrier, err := mpi.BarrierInit(ctx, c)
	if err != nil {
		return err
	}
	ps := []*mpi.Persistent{reduce, gather, barrier}
	for round := range 10 {
		in[0] = me + round
		for i := range mine {
			mine[i] = 100*round + me
		}
		for i := range ps {
			if err := ps[(i+me+round)%len(ps)].Start(); err != nil {
				return err
			}
		}
		reqs := []mpi.Request{barrier.Request(), gather.Request(), reduce.Request()}
		if err := errors.Join(mpi.Barrier(ctx, c), mpi.WaitAll(ctx, reqs, nil)); err != nil {
			return err
		}
		if want := n*(n-1)/2 + n*round; sum[0] != want {
			return fmt.Errorf("round %d: the sum is %d, want %d", round, sum[0], want)
		}
		for rank, at := 0, 0; rank < n; rank++ {
			for range rank + 1 {
				if all[at] != 100*round+rank {
					return fmt.Errorf("round %d: gathered %v", round, all)
				}
				at++
			}
		}
	}
	if err := errors.Join(barrier.Free(), wants("a second Free", barrier.Free(), mpi.ErrClosed)); err != nil {
		return err
	}
	if err := reduce.Start(); err != nil { // It completes after Free, and its memory is not used again before.
		return err
	}
	if err := errors.Join(reduce.Free(), mpi.Barrier(ctx, c), c.Close()); err != nil {
		return err
	}
	return errors.Join(wants("Start after Close", gather.Start(), mpi.ErrClosed), gather.Free(), mpi.Barrier(ctx, world))
}

// A request that the program frees leaves the operation under way, and the next start has other memory.
func TestPersistentCollective_StartedAgainAfterFreeOfItsRequest_KeepsBothApart(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		in, out := []int{1}, []int{0}
		p, err := mpi.AllreduceInit(ctx, c, in, out, mpi.Sum[int]())
		if err != nil {
			return err
		}
		for range 50 {
			if err := p.Start(); err != nil {
				return err
			}
			if err := p.Request().Free(); err != nil && !errors.Is(err, mpi.ErrClosed) {
				return err
			}
		}
		if err := p.Start(); err != nil {
			return err
		}
		_, err = p.Wait(ctx)
		return errors.Join(err, must(out[0] == 2, "the sum is %d", out[0]), p.Free())
	}))
}

func TestPersistentCollective_WrongArguments_AreErrorsOfTheMember(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		_, root := mpi.BcastInit(ctx, c, []int{1}, 2)
		_, short := mpi.AllreduceInit(ctx, c, []int{1}, nil, mpi.Sum[int]())
		_, pointers := mpi.BcastInit(ctx, c, []*int{nil}, 0)
		gone, end := context.WithCancel(ctx)
		end()
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		_, canceled := mpi.BarrierInit(gone, d)
		if errors.Is(canceled, mpi.ErrBroken) { // The other member was first.
			canceled = mpi.ErrCanceled
		}
		_, broken := mpi.BarrierInit(ctx, d)
		return errors.Join(wants("root", root, mpi.ErrRank), wants("short", short, mpi.ErrTruncate), wants("pointers", pointers, mpi.ErrType),
			wants("ended context", canceled, mpi.ErrCanceled), wants("after it", broken, mpi.ErrBroken), d.Close(), mpi.Barrier(ctx, c))
	}))
}

// A context outlives the communicator while an operation is pending, and receives its revocation.
func TestPersistentCollective_RevokedAfterClose_ReturnsErrRevoked(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(2, params).Run(t, revokedAfterClose)
		})
	}
	t.Run("goroutine ranks", func(t *testing.T) {
		_, parent := singleton(t)
		tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tc.Run(t.Context(), revokedAfterClose), tc.Close()); err != nil {
			t.Error(err)
		}
	})
}

func revokedAfterClose(ctx context.Context, world *mpi.Comm) error {
	c, err := world.Dup(ctx)
	if err != nil {
		return err
	}
	p, err := mpi.BarrierInit(ctx, c)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		if _, err := world.Recv(ctx, nil, 1, 0); err != nil {
			return err
		}
		return errors.Join(c.Revoke(), mpi.Barrier(ctx, world), c.Close())
	}
	if err := errors.Join(p.Start(), c.Close(), world.Send(ctx, nil, 0, 0)); err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return errors.Join(wants("wait", err, mpi.ErrRevoked), mpi.Barrier(ctx, world))
}

// The operations of the survivors end. Those of the communicator that Shrink returns work.
func TestPersistentCollective_MemberDies_ReturnsErrProcFailed(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(4, params).Run(t, persistentDeath)
		})
	}
}

func persistentDeath(ctx context.Context, world *mpi.Comm) error {
	c, err := world.Dup(ctx)
	if err != nil {
		return err
	}
	in, sum := []int{1}, []int{0}
	p, err := mpi.AllreduceInit(ctx, c, in, sum, mpi.Sum[int]())
	if err != nil {
		return err
	}
	if c.Rank() == 3 {
		for rank := range 3 {
			if _, err := world.Recv(ctx, nil, rank, 0); err != nil {
				return err
			}
		}
		mpitest.Die(ctx)
	}
	if err := errors.Join(p.Start(), world.Send(ctx, nil, 3, 0)); err != nil {
		return err
	}
	_, waits := p.Wait(ctx)
	starts := p.Start()
	_, inits := mpi.BarrierInit(ctx, c)
	for what, err := range map[string]error{"wait": waits, "start": starts, "initialization": inits} {
		if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrBroken) {
			return fmt.Errorf("%s after the death: %w", what, err)
		}
	}
	s, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	q, err := mpi.AllreduceInit(ctx, s, in, sum, mpi.Sum[int]())
	if err != nil {
		return err
	}
	if err := q.Start(); err != nil {
		return err
	}
	_, err = q.Wait(ctx)
	return errors.Join(err, must(sum[0] == 3, "the sum of the survivors is %d", sum[0]), p.Free(), s.Close(), c.Close())
}

func TestPersistentCollective_LeftByGoroutineRank_IsNamed(t *testing.T) {
	_, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
		c.SetName("solver")
		_, err := mpi.BarrierInit(ctx, c)
		return err
	})
	if want := `persistent barrier of communicator "solver"`; !errors.Is(err, mpi.ErrPending) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
	if err := tc.Close(); err != nil {
		t.Error(err)
	}
}
