package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// overVariants runs f as ranks over every stack and choice of algorithms.
func overVariants(t *testing.T, ranks int, f mpitest.Program) {
	t.Helper()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			job, done, err := v.job(ranks)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
				// The second collective opens shared memory.
				if err := errors.Join(mpi.Barrier(ctx, c), mpi.Barrier(ctx, c)); err != nil {
					return err
				}
				return f(ctx, c)
			})
		})
	}
}

// bothForms is a collective in both forms.
type bothForms struct {
	name  string
	block func() error
	start func() (mpi.Request, error)
}

// do calls both forms, and returns their errors.
func (f bothForms) do(ctx context.Context) (blocking, nonblocking error) {
	blocking = f.block()
	q, nonblocking := f.start()
	if nonblocking == nil {
		_, nonblocking = q.Wait(ctx)
	}
	return blocking, nonblocking
}

// TestCollective_BlocksLeaveARemainder_ErrRankAtThatMember checks every form with a remainder. The other
// members wait meanwhile, and calls with equal blocks complete for all afterwards.
func TestCollective_BlocksLeaveARemainder_ErrRankAtThatMember(t *testing.T) {
	const n = 3
	mpitest.Run(t, n, func(ctx context.Context, c *mpi.Comm) error {
		sum := mpi.Sum[int]()
		for wrong := range n {
			for _, length := range []int{1, n - 1, n + 1, 2*n + 1} {
				if c.Rank() == wrong {
					send, recv := make([]int, length), make([]int, 3*n)
					for _, f := range []bothForms{
						{"scatter", func() error { return mpi.Scatter(ctx, c, send, recv, wrong) }, func() (mpi.Request, error) { return mpi.Iscatter(c, send, recv, wrong) }},
						{"scatter in place", func() error { return mpi.Scatter(ctx, c, send, nil, wrong) }, func() (mpi.Request, error) { return mpi.Iscatter(c, send, nil, wrong) }},
						{"alltoall", func() error { return mpi.Alltoall(ctx, c, send, recv) }, func() (mpi.Request, error) { return mpi.Ialltoall(c, send, recv) }},
						{"alltoall in place", func() error { return mpi.Alltoall(ctx, c, nil, send) }, func() (mpi.Request, error) { return mpi.Ialltoall(c, nil, send) }},
						{"gather in place", func() error { return mpi.Gather(ctx, c, nil, send, wrong) }, func() (mpi.Request, error) { return mpi.Igather(c, nil, send, wrong) }},
						{"allgather in place", func() error { return mpi.Allgather(ctx, c, nil, send) }, func() (mpi.Request, error) { return mpi.Iallgather(c, nil, send) }},
						{"reduce_scatter_block", func() error { return mpi.ReduceScatterBlock(ctx, c, send, recv, sum) },
							func() (mpi.Request, error) { return mpi.IreduceScatterBlock(c, send, recv, sum) }},
						{"reduce_scatter_block in place", func() error { return mpi.ReduceScatterBlock(ctx, c, nil, send, sum) },
							func() (mpi.Request, error) { return mpi.IreduceScatterBlock(c, nil, send, sum) }},
					} {
						blocking, nonblocking := f.do(ctx)
						if err := errors.Join(wants(f.name, blocking, mpi.ErrRank), wants("i"+f.name, nonblocking, mpi.ErrRank)); err != nil {
							return fmt.Errorf("%d elements: %w", length, err)
						}
					}
				}
				if err := equalBlocks(ctx, c, 2); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestScatter_BlockOfAnotherLength_ErrorInThatMember passes blocks that are shorter and longer than recv.
// Only the root's recv may be longer than its block.
func TestScatter_BlockOfAnotherLength_ErrorInThatMember(t *testing.T) {
	overVariants(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		const block, root, wrong = 4, 1, 2
		n, me := c.Size(), c.Rank()
		for _, length := range []int{0, block - 1, block + 1} {
			if c.Rank() == root {
				length = block + 1
			} else if c.Rank() != wrong {
				length = block
			}
			send, recv, counts := values(root, 0, n*block), make([]int, length), slices.Repeat([]int{block}, n)
			for i, call := range []func(c *mpi.Comm) error{
				func(c *mpi.Comm) error { return mpi.Scatter(ctx, c, send, recv, root) },
				func(c *mpi.Comm) error { return mpi.Scatterv(ctx, c, send, counts, nil, recv, root) },
				func(c *mpi.Comm) error { return waited(ctx)(mpi.Iscatter(c, send, recv, root)) },
				func(c *mpi.Comm) error { return waited(ctx)(mpi.Iscatterv(c, send, counts, nil, recv, root)) },
			} {
				d, err := mpi.CommFromGroup(ctx, c.Group(), fmt.Sprint("call ", i))
				if err != nil {
					return err
				}
				switch err := call(d); {
				case me == wrong && err == nil:
					return fmt.Errorf("call %d: no error of a block of %d elements for %d", i, block, length)
				case me != wrong && err != nil && !errors.Is(err, mpi.ErrBroken):
					return fmt.Errorf("call %d: %w", i, err)
				}
				if err := d.Close(); err != nil {
					return err
				}
			}
		}
		return mpi.Barrier(ctx, c)
	})
}

// waited waits for a request that has been started.
func waited(ctx context.Context) func(mpi.Request, error) error {
	return func(q mpi.Request, err error) error {
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return err
	}
}

// TestMaxLoc_NaNAmongTheValues_NaNWins compares bits, with the values turned round the ranks. Several
// NaNs, equal values and zeros of both signs have one order, too.
func TestMaxLoc_NaNAmongTheValues_NaNWins(t *testing.T) {
	type located = mpi.Located[float64]
	nan, other := math.NaN(), math.Float64frombits(math.Float64bits(math.NaN())|5)
	bits := func(x located) [2]uint64 { return [2]uint64{math.Float64bits(x.Value), uint64(x.Index)} }
	const n = 4
	cases := []struct {
		values         [n]located // by rank, turned by every number of ranks
		largest, least located
	}{
		{[n]located{{nan, 7}, {1, 0}, {-2, 1}, {30, 2}}, located{nan, 7}, located{nan, 7}},
		{[n]located{{nan, 7}, {1, 0}, {other, 5}, {30, 2}}, located{other, 5}, located{other, 5}},
		{[n]located{{nan, 7}, {1, 0}, {other, 7}, {30, 2}}, located{nan, 7}, located{nan, 7}},
		{[n]located{{3, 9}, {1, 4}, {1, 2}, {3, 8}}, located{3, 8}, located{1, 2}},
		{[n]located{{0, 3}, {math.Copysign(0, -1), 3}, {0, 4}, {0, 3}}, located{0, 3}, located{0, 3}},
	}
	overVariants(t, n, func(ctx context.Context, c *mpi.Comm) error {
		for _, x := range cases {
			for turn := range n {
				for _, count := range []int{1, 3000} {
					mine := slices.Repeat([]located{x.values[(c.Rank()+turn)%n]}, count)
					largest, least, at0 := make([]located, count), slices.Clone(mine), make([]located, count)
					if err := errors.Join(mpi.Allreduce(ctx, c, mine, largest, mpi.MaxLoc[float64]()),
						waited(ctx)(mpi.Iallreduce(c, nil, least, mpi.MinLoc[float64]())),
						mpi.Reduce(ctx, c, mine, at0, mpi.MaxLoc[float64](), 0)); err != nil {
						return err
					}
					for i := range count {
						if bits(largest[i]) != bits(x.largest) || bits(least[i]) != bits(x.least) || c.Rank() == 0 && bits(at0[i]) != bits(x.largest) {
							return fmt.Errorf("%v turned by %d: maxloc %v, minloc %v, of %d elements", x.values, turn, largest[i], least[i], count)
						}
					}
					tops := make([]float64, count)
					for i := range tops {
						tops[i] = mine[i].Value
					}
					if err := mpi.Allreduce(ctx, c, nil, tops, mpi.Max[float64]()); err != nil {
						return err
					}
					if math.IsNaN(x.largest.Value) != math.IsNaN(tops[count-1]) {
						return fmt.Errorf("%v turned by %d: max %v", x.values, turn, tops[count-1])
					}
				}
			}
		}
		return nil
	})
}

// TestElementsOfSizeZero_Everywhere_MoveNothing calls every function, in place and not. The program's
// operation is called with no element.
func TestElementsOfSizeZero_Everywhere_MoveNothing(t *testing.T) {
	overVariants(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		return errors.Join(zeroSized[struct{}](ctx, c), zeroSized[[0]int64](ctx, c), zeroSized[[2]struct{}](ctx, c))
	})
}

func zeroSized[T any](ctx context.Context, c *mpi.Comm) error {
	n, root := c.Size(), c.Size()-1
	called := 0
	for _, op := range []mpi.Op[T]{
		mpi.NewOp(func(inout, in []T) { called += len(inout) + len(in) }, true),
		mpi.NewOp(func(inout, in []T) { called += len(inout) + len(in) }, false),
	} {
		for _, f := range zeroForms(ctx, c, op, root) {
			blocking, nonblocking := f.do(ctx)
			if err := errors.Join(blocking, nonblocking); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	if called != 0 {
		return fmt.Errorf("the operation was called with %d elements", called)
	}
	next, previous := (c.Rank()+1)%n, (c.Rank()-1+n)%n
	st, err := mpi.Sendrecv(ctx, c, make([]T, 5), next, 1, make([]T, 2), previous, 1)
	if err != nil {
		return err
	}
	q, err := mpi.Issend(c, make([]T, 5), next, 2)
	if err != nil {
		return err
	}
	if _, err := mpi.Recv(ctx, c, make([]T, 5), previous, 2); err != nil {
		return err
	}
	_, err = q.Wait(ctx)
	count, whole := mpi.Count[T](st)
	return errors.Join(err, must(count == 0 && whole && st.Bytes == 0, "status %+v counts as %d, %v", st, count, whole))
}

// zeroForms are all collectives on elements that have no bytes.
func zeroForms[T any](ctx context.Context, c *mpi.Comm, op mpi.Op[T], root int) []bothForms {
	n, m := c.Size(), make([]T, 3*c.Size())
	one, counts := m[:3], slices.Repeat([]int{3}, n)
	block := one
	var all []T // of the root
	if c.Rank() == root {
		all, block = m, nil
	}
	return []bothForms{
		{"bcast", func() error { return mpi.Bcast(ctx, c, one, root) }, func() (mpi.Request, error) { return mpi.Ibcast(c, one, root) }},
		{"reduce", func() error { return mpi.Reduce(ctx, c, one, one, op, root) }, func() (mpi.Request, error) { return mpi.Ireduce(c, one, one, op, root) }},
		{"allreduce", func() error { return mpi.Allreduce(ctx, c, one, m, op) }, func() (mpi.Request, error) { return mpi.Iallreduce(c, nil, one, op) }},
		{"scan", func() error { return mpi.Scan(ctx, c, one, m, op) }, func() (mpi.Request, error) { return mpi.Iscan(c, nil, one, op) }},
		{"exscan", func() error { return mpi.Exscan(ctx, c, one, m, op) }, func() (mpi.Request, error) { return mpi.Iexscan(c, nil, one, op) }},
		{"reduce_scatter_block", func() error { return mpi.ReduceScatterBlock(ctx, c, m, one, op) }, func() (mpi.Request, error) { return mpi.IreduceScatterBlock(c, nil, m, op) }},
		{"reduce_scatter", func() error { return mpi.ReduceScatter(ctx, c, m, one, counts, op) }, func() (mpi.Request, error) { return mpi.IreduceScatter(c, nil, m, counts, op) }},
		{"gather", func() error { return mpi.Gather(ctx, c, one, m, root) }, func() (mpi.Request, error) { return mpi.Igather(c, block, all, root) }},
		{"gatherv", func() error { return mpi.Gatherv(ctx, c, one, m, counts, nil, root) }, func() (mpi.Request, error) { return mpi.Igatherv(c, block, all, counts, nil, root) }},
		{"scatter", func() error { return mpi.Scatter(ctx, c, all, one, root) }, func() (mpi.Request, error) { return mpi.Iscatter(c, all, block, root) }},
		{"scatterv", func() error { return mpi.Scatterv(ctx, c, all, counts, nil, one, root) }, func() (mpi.Request, error) { return mpi.Iscatterv(c, all, counts, nil, block, root) }},
		{"allgather", func() error { return mpi.Allgather(ctx, c, one, m) }, func() (mpi.Request, error) { return mpi.Iallgather(c, nil, m) }},
		{"allgatherv", func() error { return mpi.Allgatherv(ctx, c, one, m, counts, nil) }, func() (mpi.Request, error) { return mpi.Iallgatherv(c, nil, m, counts, nil) }},
		{"alltoall", func() error { return mpi.Alltoall(ctx, c, m, m[:3*n]) }, func() (mpi.Request, error) { return mpi.Ialltoall(c, nil, m) }},
		{"alltoallv", func() error { return mpi.Alltoallv(ctx, c, m, counts, nil, m, counts, nil) },
			func() (mpi.Request, error) { return mpi.Ialltoallv(c, nil, nil, nil, m, counts, nil) }},
	}
}

// TestSynchronousSend_ReceiverClosesTheCommunicator_Fails checks every form, of short and long messages,
// before and after the receiver has closed. Messages that were received are no errors.
func TestSynchronousSend_ReceiverClosesTheCommunicator_Fails(t *testing.T) {
	overVariants(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		for _, size := range []int{1, 300_000} {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			buf := make([]byte, size)
			if c.Rank() == 0 {
				if _, err := d.Recv(ctx, buf, 1, 1); err != nil {
					return err
				}
				if err := errors.Join(d.Close(), mpi.Barrier(ctx, c)); err != nil {
					return err
				}
				continue
			}
			var errs []error
			received, err := d.Issend(buf, 0, 1)
			errs = append(errs, err)
			dropped, err := d.Issend(buf, 0, 1)
			errs = append(errs, err)
			p, err := d.SsendInit(buf, 0, 2)
			errs = append(errs, err, p.Start())
			_, err = received.Wait(ctx)
			errs = append(errs, err)
			_, err = dropped.Wait(ctx)
			errs = append(errs, wants("issend", err, mpi.ErrTransport))
			_, err = p.Wait(ctx)
			errs = append(errs, wants("a persistent one", err, mpi.ErrTransport), p.Free())
			errs = append(errs, wants("ssend", d.Ssend(ctx, buf, 0, 1), mpi.ErrTransport), d.Close(), mpi.Barrier(ctx, c))
			if err := errors.Join(errs...); err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
		}
		return nil
	})
}
