package conform

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/mpi"
)

// span is an interval of ranks. Its concatenation does not commute, and shows the order of
// operands.
type span struct{ From, To, Broken int }

// joined is the operation of spans that meet.
func joined() mpi.Op[span] {
	return mpi.NewOp(func(inout, in []span) {
		for i := range in {
			broken := in[i].Broken | inout[i].Broken
			if in[i].To != inout[i].From {
				broken = 1
			}
			inout[i] = span{in[i].From, inout[i].To, broken}
		}
	}, false)
}

func spans(from, to, n int) []span { return slices.Repeat([]span{{from, to, 0}}, n) }

func (e *env) reduceInOrder() {
	me, n := e.ranks()
	op, mine := joined(), func(k int) []span { return spans(me, me+1, k) }
	for _, k := range []int{1, 3000} {
		for root := range n {
			want := spans(-1, -1, k)
			if me == root {
				want = spans(0, n, k)
			}
			both(e, "reduce", func() []span { return spans(-1, -1, k) }, want,
				func(b []span) error { return mpi.Reduce(e.ctx, e.c, mine(k), b, op, root) },
				func(b []span) (mpi.Request, error) { return mpi.Ireduce(e.c, mine(k), b, op, root) })
		}
		both(e, "allreduce", func() []span { return spans(-1, -1, k) }, spans(0, n, k),
			func(b []span) error { return mpi.Allreduce(e.ctx, e.c, mine(k), b, op) },
			func(b []span) (mpi.Request, error) { return mpi.Iallreduce(e.c, mine(k), b, op) })
		both(e, "allreduce in place", func() []span { return mine(k) }, spans(0, n, k),
			func(b []span) error { return mpi.Allreduce(e.ctx, e.c, nil, b, op) },
			func(b []span) (mpi.Request, error) { return mpi.Iallreduce(e.c, nil, b, op) })
	}
}

func (e *env) predefined() {
	me, n := e.ranks()
	check := func(name string, op mpi.Op[int], mine, want int) {
		both(e, name, func() []int { return []int{-1} }, []int{want},
			func(b []int) error { return mpi.Allreduce(e.ctx, e.c, []int{mine}, b, op) },
			func(b []int) (mpi.Request, error) { return mpi.Iallreduce(e.c, []int{mine}, b, op) })
	}
	sum, product, and, or, xor := 0, 1, -1, 0, 0
	for rank := range n {
		sum += rank + 1
		product *= rank%3 + 1
		and, or, xor = and&(rank|8), or|rank, xor^(rank+1)
	}
	check("sum", mpi.Sum[int](), me+1, sum)
	check("prod", mpi.Prod[int](), me%3+1, product)
	check("max", mpi.Max[int](), -me, 0)
	check("min", mpi.Min[int](), -me, 1-n)
	check("band", mpi.BitAnd[int](), me|8, and)
	check("bor", mpi.BitOr[int](), me, or)
	check("bxor", mpi.BitXor[int](), me+1, xor)
	check("land", mpi.LogicalAnd[int](), 1, 1)
	check("lor", mpi.LogicalOr[int](), 0, 0)
	check("lxor", mpi.LogicalXor[int](), 1, n%2)
}

func (e *env) locations() {
	me, n := e.ranks()
	type at = mpi.Located[float64]
	// Rank n-1 has the least value. All others have the greatest one, and the lowest of them wins.
	mine := []at{{Value: 1, Index: int64(me)}}
	if me == n-1 && n > 1 {
		mine[0].Value = -1
	}
	most, least := make([]at, 1), make([]at, 1)
	e.Check(mpi.Allreduce(e.ctx, e.c, mine, most, mpi.MaxLoc[float64]()))
	e.Check(mpi.Allreduce(e.ctx, e.c, mine, least, mpi.MinLoc[float64]()))
	e.must(most[0] == (at{Value: 1}), "maxloc: %v", most[0])
	e.must(least[0].Index == int64(n-1), "minloc: %v", least[0])
}

func (e *env) operands() {
	me, n := e.ranks()
	var wrong atomic.Int32
	op := mpi.NewOp(func(inout, in []int) {
		if len(in) != len(inout) || len(in) == 0 {
			wrong.Add(1)
		}
		for i := range in {
			if in[i] > inout[i] { // of lower ranks
				wrong.Add(1)
			}
			inout[i] = max(in[i], inout[i])
		}
	}, false)
	got := make([]int, 3)
	e.Check(mpi.Allreduce(e.ctx, e.c, []int{me, me, me}, got, op))
	e.must(wrong.Load() == 0 && got[0] == n-1 && got[2] == n-1, "%d calls with operands the other way round: %v", wrong.Load(), got)
}

// sameBits checks that all members get the same sum of floating-point numbers, which depends on the order.
func (e *env) sameBits() {
	me, n := e.ranks()
	for _, k := range []int{1, 5, 4097} {
		mine, sum := make([]float64, k), make([]float64, k)
		for i := range mine {
			mine[i] = math.Sqrt(float64(me*k+i)) * math.Pow(10, float64((me*7+i)%13))
		}
		e.Check(mpi.Allreduce(e.ctx, e.c, mine, sum, mpi.Sum[float64]()))
		all := make([]float64, n*k)
		e.Check(mpi.Allgather(e.ctx, e.c, sum, all))
		for i, x := range all {
			e.must(math.Float64bits(x) == math.Float64bits(sum[i%k]), "element %d is %x here and %x in rank %d", i%k, sum[i%k], x, i/k)
		}
	}
}

func (e *env) reduceScatter() {
	me, n := e.ranks()
	op := joined()
	both(e, "reduce_scatter_block", func() []span { return spans(-1, -1, 3) }, append(spans(0, n, 2), spans(-1, -1, 1)...),
		func(b []span) error { return mpi.ReduceScatterBlock(e.ctx, e.c, spans(me, me+1, 2*n), b, op) },
		func(b []span) (mpi.Request, error) {
			return mpi.IreduceScatterBlock(e.c, spans(me, me+1, 2*n), b, op)
		})
	counts, all := make([]int, n), 0
	for rank := range counts {
		counts[rank] = rank % 3
		all += counts[rank]
	}
	both(e, "reduce_scatter", func() []span { return spans(-1, -1, counts[me]) }, spans(0, n, counts[me]),
		func(b []span) error { return mpi.ReduceScatter(e.ctx, e.c, spans(me, me+1, all), b, counts, op) },
		func(b []span) (mpi.Request, error) {
			return mpi.IreduceScatter(e.c, spans(me, me+1, all), b, counts, op)
		})
	b := spans(me, me+1, 2*n)
	e.Check(mpi.ReduceScatterBlock(e.ctx, e.c, nil, b, op))
	e.must(slices.Equal(b[:2], spans(0, n, 2)), "reduce_scatter_block in place: %v", b)
}

func (e *env) scan() {
	me, _ := e.ranks()
	op, mine := joined(), spans(me, me+1, 2)
	both(e, "scan", func() []span { return spans(-1, -1, 2) }, spans(0, me+1, 2),
		func(b []span) error { return mpi.Scan(e.ctx, e.c, mine, b, op) },
		func(b []span) (mpi.Request, error) { return mpi.Iscan(e.c, mine, b, op) })
	want := spans(0, me, 2)
	if me == 0 { // It gets no result.
		want = spans(-1, -1, 2)
	}
	both(e, "exscan", func() []span { return spans(-1, -1, 2) }, want,
		func(b []span) error { return mpi.Exscan(e.ctx, e.c, mine, b, op) },
		func(b []span) (mpi.Request, error) { return mpi.Iexscan(e.c, mine, b, op) })
}

func (e *env) anyOrder() {
	me, n := e.ranks()
	const many = 30
	sums, reqs := make([]int, many), make([]mpi.Request, many)
	for i := range reqs {
		sums[i] = me + i
		reqs[i] = need(mpi.Iallreduce(e.c, nil, sums[i:i+1], mpi.Sum[int]()))(e)
	}
	for i := many - 1; i >= 0; i-- {
		e.none("wait")(reqs[i].Wait(e.ctx))
		want := n*(n-1)/2 + n*i
		e.must(sums[i] == want, "sum %d is %d, want %d", i, sums[i], want)
	}
}

func (e *env) together() {
	me, n := e.ranks()
	in, word, all := make([]byte, 1), []int{me}, unset(n)
	reqs := []mpi.Request{
		e.irecv(in, e.leftRank, 0),
		need(mpi.Ibcast(e.c, word, n-1))(e),
	}
	e.Check(mpi.Barrier(e.ctx, e.c))
	reqs = append(reqs, need(mpi.Iallgather(e.c, []int{me}, all))(e), need(e.c.Isend([]byte{byte(me)}, e.rightRank, 0))(e))
	e.Is("cancel of a collective", reqs[2].Cancel(), mpi.ErrUnsupported)
	for range reqs {
		i, _, err := mpi.WaitAny(e.ctx, reqs)
		e.must(i != mpi.Undefined && err == nil, "wait for any: %d, %v", i, err)
	}
	e.must(int(in[0]) == e.leftRank && word[0] == n-1, "message %v, broadcast %v", in, word)
	for rank, x := range all {
		e.must(x == rank, "allgather: %v", all)
	}
}

func (e *env) ibarrier() {
	me, _ := e.ranks()
	if me == 0 {
		r := need(mpi.Ibarrier(e.c))(e)
		_, done, err := r.Test()
		e.must(!done && err == nil, "a barrier that the others have not entered: %t, %v", done, err)
		for rank := 1; rank < e.c.Size(); rank++ {
			e.Check(e.c.Send(e.ctx, nil, rank, 0))
		}
		e.none("wait")(r.Wait(e.ctx))
		return
	}
	_, err := e.c.Recv(e.ctx, nil, 0, 0)
	e.Check(err)
	r := need(mpi.Ibarrier(e.c))(e)
	e.none("wait")(r.Wait(e.ctx))
}

// apart checks that a receive from any source with any tag does not match a collective's messages.
func (e *env) apart() {
	me, n := e.ranks()
	in := make([]byte, 1)
	r := e.irecv(in, mpi.AnySource, mpi.AnyTag)
	sum := []int{me}
	e.Check(mpi.Allreduce(e.ctx, e.c, nil, sum, mpi.Sum[int]()))
	e.Check(e.c.Send(e.ctx, []byte{byte(me)}, e.rightRank, 5))
	e.status("wait", e.leftRank, 5, 1)(r.Wait(e.ctx))
	e.must(sum[0] == n*(n-1)/2 && int(in[0]) == e.leftRank, "sum %d, message %v", sum[0], in)
}
