package conform

import (
	"fmt"
	"math"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// edgeCases returns cases of extreme and wrong arguments.
func edgeCases() []Case {
	return []Case{
		of("collective/blocks with a remainder send nothing", "6.2.2", 2, (*env).remainders),
		of("collective/scatter of a block of another length", "6.6", 2, (*env).otherLength),
		of("collective/maxloc and minloc of NaN", "6.9.4", 1, (*env).locationsOfNaN),
		of("collective/elements without bytes", "6.9", 1, (*env).withoutBytes),
		of("collective/thousands of nonblocking ones", "6.12", 2, (*env).thousands),
		of("message/an unreceived synchronous send", "3.4", 2, (*env).unreceived),
	}
}

// remainders passes lengths that are no multiple of the number of ranks, at one of them.
func (e *env) remainders() {
	me, n := e.ranks()
	for _, length := range []int{1, n + 1, 2*n - 1} {
		if length%n == 0 { // of two ranks
			continue
		}
		if me == n-1 {
			send, recv, sum := make([]int, length), make([]int, 2*n), mpi.Sum[int]()
			e.Is("scatter", mpi.Scatter(e.ctx, e.c, send, recv, me), mpi.ErrRank)
			e.Is("alltoall", mpi.Alltoall(e.ctx, e.c, send, recv), mpi.ErrRank)
			e.Is("alltoall in place", mpi.Alltoall(e.ctx, e.c, nil, send), mpi.ErrRank)
			e.Is("gather in place", mpi.Gather(e.ctx, e.c, nil, send, me), mpi.ErrRank)
			e.Is("allgather in place", mpi.Allgather(e.ctx, e.c, nil, send), mpi.ErrRank)
			e.Is("reduce_scatter_block", mpi.ReduceScatterBlock(e.ctx, e.c, send, recv, sum), mpi.ErrRank)
			_, err := mpi.Iscatter(e.c, send, recv, me)
			e.Is("iscatter", err, mpi.ErrRank)
		}
		e.allgathers() // the communicator works for all
	}
}

// otherLength has the last rank expect another block than comes.
func (e *env) otherLength() {
	me, n := e.ranks()
	const block = 3
	for _, length := range []int{block - 1, block + 1} {
		for _, vector := range []bool{false, true} {
			c := need(e.c.Dup(e.ctx))(e)
			recv, counts := make([]int, block), slices.Repeat([]int{block}, n)
			if me == n-1 {
				recv = make([]int, length)
			}
			var err error
			if vector {
				err = mpi.Scatterv(e.ctx, c, make([]int, n*block), counts, nil, recv, 0)
			} else {
				err = mpi.Scatter(e.ctx, c, make([]int, n*block), recv, 0)
			}
			if me == n-1 {
				e.must(err != nil, "no error of a block of %d elements for %d", block, length)
			} else if err != nil { // it may know already of the last rank's
				e.Is("scatter", err, mpi.ErrBroken)
			}
			e.Check(c.Close())
		}
	}
}

// locationsOfNaN gives each rank the NaN in turn.
func (e *env) locationsOfNaN() {
	me, n := e.ranks()
	for who := range n {
		v := float64(10 * me)
		if me == who {
			v = math.NaN()
		}
		mine := []mpi.Located[float64]{{Value: v, Index: int64(me)}}
		for i, op := range []mpi.Op[mpi.Located[float64]]{mpi.MaxLoc[float64](), mpi.MinLoc[float64]()} {
			got := slices.Clone(mine)
			e.Check(mpi.Allreduce(e.ctx, e.c, nil, got, op))
			e.must(math.IsNaN(got[0].Value) && got[0].Index == int64(who), "operation %d with a NaN at rank %d: %v", i, who, got[0])
		}
	}
}

// withoutBytes reduces and moves elements of size 0, also in shared memory.
func (e *env) withoutBytes() {
	type nothing struct{}
	me, n := e.ranks()
	called := 0
	op := mpi.NewOp(func(inout, _ []nothing) { called += len(inout) }, true)
	one, all := make([]nothing, 3), make([]nothing, 3*n)
	for range 3 { // Collective segments open in one of these rounds.
		e.Check(mpi.Allreduce(e.ctx, e.c, one, all, op))
		e.Check(mpi.Reduce(e.ctx, e.c, one, all, op, 0))
		e.Check(mpi.Scan(e.ctx, e.c, one, all, op))
		e.Check(mpi.ReduceScatterBlock(e.ctx, e.c, all, one, op))
		e.Check(mpi.Allgather(e.ctx, e.c, one, all))
		e.Check(mpi.Alltoall(e.ctx, e.c, nil, all))
		e.Check(mpi.Bcast(e.ctx, e.c, one, 0))
		q := need(mpi.Iallreduce(e.c, nil, one, op))(e)
		e.none("iallreduce")(q.Wait(e.ctx))
	}
	st, err := mpi.Sendrecv(e.ctx, e.c, one, e.rightRank, 1, one, e.leftRank, 1)
	e.status("sendrecv", e.leftRank, 1, 0)(st, err)
	count, whole := mpi.Count[nothing](st)
	e.must(called == 0 && count == 0 && whole, "rank %d: %d elements combined, %d received (%v)", me, called, count, whole)
}

// thousands has more nonblocking collectives under way than exchange messages at a time.
func (e *env) thousands() {
	me, n := e.ranks()
	const most = 3000
	if me == n-1 { // begins when another rank has started all
		_, err := e.c.Recv(e.ctx, nil, 0, 1)
		e.Check(err)
	}
	values, requests := make([]int, most), make([]mpi.Request, most)
	for i := range requests {
		if me == i%n {
			values[i] = i
		}
		requests[i] = need(mpi.Ibcast(e.c, values[i:i+1], i%n))(e)
	}
	if me == 0 {
		e.Check(e.c.Send(e.ctx, nil, n-1, 1))
	}
	e.barrier()
	e.Check(mpi.WaitAll(e.ctx, requests, nil))
	for i, v := range values {
		e.must(v == i, "number %d has brought %d", i, v)
	}
}

// unreceived closes a communicator with waiting synchronous messages. The one that was received succeeds.
func (e *env) unreceived() {
	me, _ := e.ranks()
	for _, size := range []int{0, 100, 100_000} {
		c := need(e.c.Dup(e.ctx))(e)
		switch me {
		case 0:
			received, dropped := need(c.Issend(make([]byte, size), 1, 1))(e), need(c.Issend(make([]byte, size), 1, 1))(e)
			e.none(fmt.Sprintf("%d bytes that were received", size))(received.Wait(e.ctx))
			_, err := dropped.Wait(e.ctx)
			e.Is(fmt.Sprintf("%d unreceived bytes", size), err, mpi.ErrTransport)
			e.Is("a later one", c.Ssend(e.ctx, make([]byte, size), 1, 1), mpi.ErrTransport)
		case 1:
			_, err := c.Recv(e.ctx, make([]byte, size), 0, 1)
			e.Check(err)
		}
		e.Check(c.Close())
	}
}
