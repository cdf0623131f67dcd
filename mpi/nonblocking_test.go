package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// product is of matrices, which don't commute.
func product() mpi.Op[matrix] {
	return mpi.NewOp(func(inout, in []matrix) {
		for i := range in {
			inout[i] = in[i].times(inout[i])
		}
	}, false)
}

func factors(rank, n int) []matrix {
	s := make([]matrix, n)
	for i := range s {
		s[i] = matrix{{uint64(rank + 1), uint64(i)}, {1, uint64(rank)}}
	}
	return s
}

// All operations start before the first wait, with messages and a blocking collective between them.
func TestNonblocking_Results_EqualBlocking(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5} {
		for _, block := range []int{0, 3, 5000} {
			t.Run(fmt.Sprintf("%d ranks, %d elements", n, block), func(t *testing.T) {
				t.Parallel()
				mpitest.Run(t, n, func(ctx context.Context, c *mpi.Comm) error { return allForms(ctx, c, block) })
			})
		}
	}
}

// Ids of the network become known with the first messages.
func TestNonblocking_OverMTL_Completes(t *testing.T) {
	t.Parallel()
	for _, shared := range []string{"true", "false"} {
		for _, policy := range []string{"agree", "lazy"} {
			t.Run("shared memory "+shared+", ids "+policy, func(t *testing.T) {
				t.Parallel()
				network := mtltest.NewMemory(mtltest.Options{})
				mpitest.Job{
					Size: 5, Params: map[string]string{"pml": "cm", "pml.cm.shared_memory": shared, "cid.policy": policy},
					Options: func(int) []mpi.SessionOption {
						return []mpi.SessionOption{mpi.WithRegistry(withMTL(network.Component()))}
					},
				}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
					for _, block := range []int{0, 3, 5000} {
						d, err := c.Dup(ctx)
						if err != nil {
							return err
						}
						if err := errors.Join(allForms(ctx, d, block), d.Close()); err != nil {
							return fmt.Errorf("%d elements: %w", block, err)
						}
					}
					return nil
				})
			})
		}
	}
}

func allForms(ctx context.Context, c *mpi.Comm, block int) error {
	n, me, root := c.Size(), c.Rank(), c.Size()/2
	var counts, displs, sends, recvs []int
	for rank := range n {
		counts = append(counts, unequal(rank, 0, block))
		sends, recvs = append(sends, unequal(me, rank, block)), append(recvs, unequal(rank, me, block))
		displs = append(displs, (n-1-rank)*2*block)
	}
	op, sum := product(), mpi.Sum[int]()
	given, one, own := values(me, 0, n*2*block+1), values(me, 1, block), values(me, 2, counts[me])
	equal, mats := given[:n*2*block], factors(me, n*block)
	forms := []struct {
		name     string
		blocking func(ints []int, mats []matrix) error
		start    func(ints []int, mats []matrix) (mpi.Request, error)
	}{
		{"barrier", func([]int, []matrix) error { return mpi.Barrier(ctx, c) },
			func([]int, []matrix) (mpi.Request, error) { return mpi.Ibarrier(c) }},
		{"bcast", func(r []int, _ []matrix) error { return mpi.Bcast(ctx, c, r[:block], root) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Ibcast(c, r[:block], root) }},
		{"reduce", func(_ []int, r []matrix) error { return mpi.Reduce(ctx, c, mats[:block], r, op, root) },
			func(_ []int, r []matrix) (mpi.Request, error) { return mpi.Ireduce(c, mats[:block], r, op, root) }},
		{"allreduce", func(_ []int, r []matrix) error { return mpi.Allreduce(ctx, c, mats[:block], r, op) },
			func(_ []int, r []matrix) (mpi.Request, error) { return mpi.Iallreduce(c, mats[:block], r, op) }},
		{"allreduce in place", func(r []int, _ []matrix) error { return mpi.Allreduce(ctx, c, nil, r, sum) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Iallreduce(c, nil, r, sum) }},
		{"scan", func(_ []int, r []matrix) error { return mpi.Scan(ctx, c, mats[:block], r, op) },
			func(_ []int, r []matrix) (mpi.Request, error) { return mpi.Iscan(c, mats[:block], r, op) }},
		{"exscan", func(_ []int, r []matrix) error { return mpi.Exscan(ctx, c, mats[:block], r, op) },
			func(_ []int, r []matrix) (mpi.Request, error) { return mpi.Iexscan(c, mats[:block], r, op) }},
		{"reduce_scatter_block", func(_ []int, r []matrix) error { return mpi.ReduceScatterBlock(ctx, c, mats, r, op) },
			func(_ []int, r []matrix) (mpi.Request, error) { return mpi.IreduceScatterBlock(c, mats, r, op) }},
		{"reduce_scatter", func(r []int, _ []matrix) error { return mpi.ReduceScatter(ctx, c, given, r, counts, sum) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.IreduceScatter(c, given, r, counts, sum) }},
		{"gather", func(r []int, _ []matrix) error { return mpi.Gather(ctx, c, one, r, root) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Igather(c, one, r, root) }},
		{"gatherv", func(r []int, _ []matrix) error { return mpi.Gatherv(ctx, c, own, r, counts, displs, root) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Igatherv(c, own, r, counts, displs, root) }},
		{"scatter", func(r []int, _ []matrix) error { return mpi.Scatter(ctx, c, equal, r[:2*block], root) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Iscatter(c, equal, r[:2*block], root) }},
		{"scatterv", func(r []int, _ []matrix) error {
			return mpi.Scatterv(ctx, c, given, sends, displs, r[:unequal(root, me, block)], root)
		},
			func(r []int, _ []matrix) (mpi.Request, error) {
				return mpi.Iscatterv(c, given, sends, displs, r[:unequal(root, me, block)], root)
			}},
		{"allgather", func(r []int, _ []matrix) error { return mpi.Allgather(ctx, c, one, r) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Iallgather(c, one, r) }},
		{"allgatherv", func(r []int, _ []matrix) error { return mpi.Allgatherv(ctx, c, own, r, counts, displs) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Iallgatherv(c, own, r, counts, displs) }},
		{"alltoall", func(r []int, _ []matrix) error { return mpi.Alltoall(ctx, c, equal, r) },
			func(r []int, _ []matrix) (mpi.Request, error) { return mpi.Ialltoall(c, equal, r) }},
		{"alltoallv", func(r []int, _ []matrix) error { return mpi.Alltoallv(ctx, c, given, sends, nil, r, recvs, displs) },
			func(r []int, _ []matrix) (mpi.Request, error) {
				return mpi.Ialltoallv(c, given, sends, nil, r, recvs, displs)
			}},
	}
	ints := func() []int { return values(me, 3, n*2*block+1) }
	matrices := func() []matrix { return factors(me+1, n*block+1) }
	wantInts, wantMats := make([][]int, len(forms)), make([][]matrix, len(forms))
	for i, f := range forms {
		wantInts[i], wantMats[i] = ints(), matrices()
		if err := f.blocking(wantInts[i], wantMats[i]); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	gotInts, gotMats := make([][]int, len(forms)), make([][]matrix, len(forms))
	reqs := make([]mpi.Request, len(forms)+2)
	var err error
	token := make([]byte, 1)
	if reqs[len(forms)], err = c.Irecv(token, (me-1+n)%n, 7); err != nil {
		return err
	}
	for i, f := range forms {
		gotInts[i], gotMats[i] = ints(), matrices()
		if reqs[i], err = f.start(gotInts[i], gotMats[i]); err != nil {
			return fmt.Errorf("i%s: %w", f.name, err)
		}
		if i == len(forms)/2 {
			if err := mpi.Barrier(ctx, c); err != nil {
				return fmt.Errorf("a barrier among them: %w", err)
			}
		}
	}
	if reqs[len(forms)+1], err = c.Isend([]byte{9}, (me+1)%n, 7); err != nil {
		return err
	}
	st := make([]mpi.Status, len(reqs))
	if err := mpi.WaitAll(ctx, reqs, st); err != nil {
		return err
	}
	for i, f := range forms {
		if !slices.Equal(gotInts[i], wantInts[i]) || !slices.Equal(gotMats[i], wantMats[i]) {
			return fmt.Errorf("i%s comes to something else than %s", f.name, f.name)
		}
		if st[i] != (mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}) {
			return fmt.Errorf("i%s: status %+v", f.name, st[i])
		}
	}
	return must(token[0] == 9, "the message among them is %v", token)
}

// No rank is in a call of the library while the operation progresses.
func TestNonblocking_ProgramComputes_Progresses(t *testing.T) {
	var combined atomic.Int32
	op := mpi.NewOp(func(inout, in []int) {
		inout[0] += in[0]
		combined.Add(1)
	}, true)
	mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
		if err := mpi.Barrier(ctx, c); err != nil {
			return err
		}
		sum := make([]int, 1)
		q, err := mpi.Iallreduce(c, []int{c.Rank()}, sum, op)
		if err != nil {
			return err
		}
		for combined.Load() < 4*2 { // two in each rank
			if runtime.Gosched(); ctx.Err() != nil {
				return fmt.Errorf("%d of 8 combinations after a time: %w", combined.Load(), ctx.Err())
			}
		}
		_, err = q.Wait(ctx)
		return errors.Join(err, must(sum[0] == 6, "the sum is %d", sum[0]))
	})
}

// TestNonblockingCollectives_ThousandsUnderWay_AllComplete starts more than run at a
// time, and a blocking one behind them. Rank 1 starts when rank 0 has all under way.
func TestNonblockingCollectives_ThousandsUnderWay_AllComplete(t *testing.T) {
	t.Parallel()
	for _, params := range []map[string]string{{}, {"coll": "^shm"}, {"coll.check": "true"}, {"pml": "ob1", "btl": "self,tcp"}} {
		t.Run(fmt.Sprint(params), func(t *testing.T) {
			t.Parallel()
			// A collective segment has room for 8 operations, and the ranks then have to run in turns. On a busy machine, each turn
			// is a time slice. A hang ends before go test -timeout does.
			mpitest.Job{Size: 2, Params: params, Timeout: time.Hour}.Run(t, thousandsUnderWay)
		})
	}
}

func thousandsUnderWay(ctx context.Context, c *mpi.Comm) error {
	const most = 2000 // Twice as many as run at a time.
	sums, reqs := make([]int, most), make([]mpi.Request, most)
	if err := errors.Join(mpi.Barrier(ctx, c), mpi.Barrier(ctx, c)); err != nil { // instances are open then
		return err
	}
	if c.Rank() == 1 {
		if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
			return err
		}
	}
	var err error
	for i := range reqs {
		sums[i] = i + c.Rank()
		if reqs[i], err = mpi.Iallreduce(c, nil, sums[i:i+1], mpi.Sum[int]()); err != nil {
			return fmt.Errorf("number %d: %w", i, err)
		}
	}
	if c.Rank() == 0 {
		if err := c.Send(ctx, nil, 1, 0); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	slices.Reverse(reqs)
	if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
		return err
	}
	for i, sum := range sums {
		if sum != 2*i+1 {
			return fmt.Errorf("sum %d is %d", i, sum)
		}
	}
	return mpi.Barrier(ctx, c)
}

// TestNonblockingCollective_TagOfARunningOne_Waits lets tags repeat. Neither a nonblocking nor a
// blocking collective meets the messages of one that began a round of tags before.
func TestNonblockingCollective_TagOfARunningOne_Waits(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
				return err
			}
		}
		values := []int{1, 2, 3}
		if c.Rank() == 1 {
			clear(values)
		}
		first, err := mpi.Ibcast(c, values[:1], 0)
		mpi.SkipCollectives(c, 1<<15-1)
		second, failed := mpi.Ibcast(c, values[1:2], 0)
		if c.Rank() == 0 {
			failed = errors.Join(failed, c.Send(ctx, nil, 1, 0))
		}
		if err := errors.Join(err, failed, mpi.Bcast(ctx, c, values[2:], 0), mpi.WaitAll(ctx, []mpi.Request{second, first}, nil)); err != nil {
			return err
		}
		return must(slices.Equal(values, []int{1, 2, 3}), "the values are %v", values)
	})
}

// TestNonblockingCollectives_BrokenWhileSomeWait_EndInAll checks that waiting operations end
// like running ones, and a blocking call behind them too.
func TestNonblockingCollectives_BrokenWhileSomeWait_EndInAll(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			over, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := world.Recv(ctx, nil, 0, 0); err != nil {
				return err
			}
			return errors.Join(wants("a barrier", mpi.Barrier(over, c), context.Canceled), c.Close())
		}
		reqs := make([]mpi.Request, 2500)
		for i := range reqs {
			if reqs[i], err = mpi.Ibarrier(c); err != nil {
				return err
			}
		}
		if err := world.Send(ctx, nil, 1, 0); err != nil {
			return err
		}
		errs := []error{wants("a blocking one", mpi.Barrier(ctx, c), mpi.ErrBroken)}
		for i, q := range reqs {
			if _, err := q.Wait(ctx); !errors.Is(err, mpi.ErrBroken) {
				errs = append(errs, fmt.Errorf("number %d: %v, want %v", i, err, mpi.ErrBroken))
			}
		}
		return errors.Join(append(errs, c.Close())...)
	})
}

func TestNonblocking_Requests_WorkWithAllFunctions(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
				return err
			}
		}
		q, err := mpi.Ibarrier(c)
		if err != nil {
			return err
		}
		freed, err := mpi.Ibarrier(c)
		if err != nil {
			return err
		}
		if err := freed.Free(); err != nil {
			return err
		}
		if c.Rank() == 0 {
			_, done, err := q.Test()
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_, late := q.Wait(short)
			if err := errors.Join(err, must(!done, "a barrier is over before the other has entered"),
				wants("cancel", q.Cancel(), mpi.ErrUnsupported), wants("a wait that ends", late, mpi.ErrTimeout), c.Send(ctx, nil, 1, 0)); err != nil {
				return err
			}
		}
		i, st, err := mpi.WaitAny(ctx, []mpi.Request{{}, q})
		_, again := q.Wait(ctx)
		return errors.Join(err, must(i == 1 && st == (mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}), "%d: %+v", i, st),
			wants("waiting again", again, mpi.ErrClosed), mpi.Barrier(ctx, c)) // the communicator works on
	})
}

// Operations of several steps send after Close of the communicator, and the session closes after them.
func TestCommClose_NonblockingPending_Completes(t *testing.T) {
	mpitest.Run(t, 5, func(ctx context.Context, world *mpi.Comm) error {
		for range 20 {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			sum := make([]int, 1)
			q, err := mpi.Iallreduce(c, []int{c.Rank()}, sum, mpi.NewOp(func(inout, in []int) { inout[0] += in[0] }, true))
			if err != nil {
				return err
			}
			if err := c.Close(); err != nil {
				return err
			}
			_, again := mpi.Ibarrier(c)
			_, err = q.Wait(ctx)
			if err := errors.Join(err, must(sum[0] == 10, "the sum is %d", sum[0]), wants("another one", again, mpi.ErrClosed)); err != nil {
				return err
			}
		}
		return nil // the job closes the session now
	})
}

// One member never starts the collective.
func TestSessionClose_CollectivePending_KeepsResources(t *testing.T) {
	mpitest.Job{Size: 2, Params: map[string]string{"session.linger": "10ms"}}.RunSessions(t, func(ctx context.Context) error {
		s, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		world, err := s.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, world, t.Name())
		if err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
				return err
			}
		}
		q, err := mpi.Ibarrier(d)
		if err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := c.Send(ctx, nil, 1, 1); err != nil {
				return err
			}
			open := s.Close()
			if err := errors.Join(wants("closing the session", open, mpi.ErrPending), c.Send(ctx, nil, 1, 0)); err != nil {
				return err
			}
		} else if _, err := c.Recv(ctx, nil, 0, 1); err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		return errors.Join(err, mpi.Barrier(ctx, c), c.Close(), s.Close())
	})
}

// A function of the program panics or ends its goroutine. Other operations in progress end, too.
func TestNonblocking_FailsInOneMember_EndsInAll(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("no such sum") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, 5, func(ctx context.Context, world *mpi.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				op := mpi.NewOp(func(inout, in []int) {
					if c.Rank() == 2 {
						end()
					}
					inout[0] += in[0]
				}, true)
				q, err := mpi.Iallreduce(c, []int{1}, make([]int, 1), op)
				other, otherErr := mpi.Ibarrier(c)
				if err == nil { // A late member is notified at once.
					_, err = q.Wait(ctx)
				}
				if otherErr == nil {
					_, otherErr = other.Wait(ctx)
				}
				switch {
				case c.Rank() == 2:
					if err == nil || !strings.Contains(err.Error(), "panicked") || name == "panic" && !strings.Contains(err.Error(), "no such sum") {
						return fmt.Errorf("waiting for it where it panicked: %v", err)
					}
				case err != nil && !strings.Contains(err.Error(), "rank 2"):
					return fmt.Errorf("waiting for the others: %v, want that rank 2 no longer takes part", err)
				}
				if otherErr != nil { // it may have been over
					otherErr = wants("one more under way", otherErr, mpi.ErrBroken)
				}
				for i := 0; i < 3 && mpi.Barrier(ctx, c) == nil; i++ { // A member with all its data is notified later.
				}
				return errors.Join(otherErr, wants("the next one", mpi.Barrier(ctx, c), mpi.ErrBroken), mpi.Barrier(ctx, world))
			})
		})
	}
}

func TestNonblocking_BlockingContextEnds_AllEnd(t *testing.T) {
	mpitest.Run(t, 3, func(ctx context.Context, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		var q mpi.Request
		if c.Rank() > 0 {
			if q, err = mpi.Ibarrier(c); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			err = wants("the barrier", mpi.Barrier(short, c), mpi.ErrTimeout)
		}
		if c.Rank() > 0 {
			_, waited := q.Wait(ctx)
			err = errors.Join(err, wants("the one under way", waited, mpi.ErrBroken))
		}
		return errors.Join(err, mpi.Barrier(ctx, world))
	})
}
