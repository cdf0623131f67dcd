package conform

import (
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func collectiveCases() []Case {
	return []Case{
		of("collective/barrier", "6.3", 1, (*env).barriers),
		of("collective/bcast from every root", "6.4", 1, (*env).bcast),
		of("collective/gather and gatherv", "6.5", 1, (*env).gather),
		of("collective/scatter and scatterv", "6.6", 1, (*env).scatter),
		of("collective/allgather and allgatherv", "6.7", 1, (*env).allgathers),
		of("collective/alltoall and alltoallv", "6.8", 1, (*env).alltoall),
		of("collective/reduce keeps the order of ranks", "6.9.1", 1, (*env).reduceInOrder),
		of("collective/predefined operations", "6.9.2", 1, (*env).predefined),
		of("collective/maxloc and minloc", "6.9.4", 1, (*env).locations),
		of("collective/user-defined operation gets the lower ranks as in", "6.9.5", 2, (*env).operands),
		of("collective/allreduce gives all the same bits", "6.9.6", 1, (*env).sameBits),
		of("collective/reduce_scatter_block and reduce_scatter", "6.10", 1, (*env).reduceScatter),
		of("collective/scan and exscan", "6.11", 1, (*env).scan),
		of("collective/nonblocking ones complete in any order", "6.12", 1, (*env).anyOrder),
		of("collective/nonblocking, blocking and messages together", "6.12", 2, (*env).together),
		of("collective/nonblocking barrier waits for all", "6.12.1", 2, (*env).ibarrier),
		of("collective/their messages meet no others", "6.14", 2, (*env).apart),
		of("collective/blocks without elements", "6.5", 1, (*env).noElements),
		of("collective/wrong arguments send nothing", "6.2.2", 1, (*env).wrongArguments),
	}
}

// both performs an operation in its blocking and its nonblocking form, and compares each result in
// fresh memory with want.
func both[T comparable](e *env, what string, fresh func() []T, want []T, blocking func([]T) error, start func([]T) (mpi.Request, error)) {
	got := fresh()
	e.Check(blocking(got))
	e.must(slices.Equal(got, want), "%s: %v, want %v", what, got, want)
	got = fresh()
	r := need(start(got))(e)
	e.none("i" + what)(r.Wait(e.ctx))
	e.must(slices.Equal(got, want), "i%s: %v, want %v", what, got, want)
}

// num returns element i of the data from one rank for another.
func num(from, to, i int) int { return from*1000 + to*10 + i }

func nums(from, to, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = num(from, to, i)
	}
	return s
}

// unset is memory that a collective has not written to.
func unset(n int) []int { return slices.Repeat([]int{-1}, n) }

// vector is blocks of 0, 1 and 2 elements, the last rank's first, with a gap of one
// element before each.
type vector struct {
	counts, displs []int
	elementCount   int
}

func vectorOf(n int, count func(rank int) int) vector {
	v := vector{counts: make([]int, n), displs: make([]int, n)}
	for rank := n - 1; rank >= 0; rank-- {
		v.counts[rank], v.displs[rank] = count(rank), v.elementCount+1
		v.elementCount += v.counts[rank] + 1
	}
	return v
}

// laid puts blocks at their places; the gaps are unset.
func (v vector) laid(block func(rank, n int) []int) []int {
	s := unset(v.elementCount)
	for rank, n := range v.counts {
		copy(s[v.displs[rank]:], block(rank, n))
	}
	return s
}

func (e *env) ranks() (me, n int) { return e.c.Rank(), e.c.Size() }

func (e *env) barriers() {
	for range 3 {
		e.Check(mpi.Barrier(e.ctx, e.c))
	}
}

func (e *env) bcast() {
	me, n := e.ranks()
	for root := range n {
		for _, count := range []int{0, 1, 1000, 100_000} {
			both(e, "bcast", func() []int { return nums(me, 0, count) }, nums(root, 0, count),
				func(b []int) error { return mpi.Bcast(e.ctx, e.c, b, root) },
				func(b []int) (mpi.Request, error) { return mpi.Ibcast(e.c, b, root) })
		}
	}
}

func (e *env) gather() {
	me, n := e.ranks()
	v := vectorOf(n, func(rank int) int { return rank % 3 })
	own := nums(me, 0, v.counts[me])
	for root := range n {
		equal, unequal := unset(2*n), unset(v.elementCount)
		if me == root {
			equal = equal[:0]
			for rank := range n {
				equal = append(equal, nums(rank, 0, 2)...)
			}
			unequal = v.laid(func(rank, k int) []int { return nums(rank, 0, k) })
		}
		both(e, "gather", func() []int { return unset(2 * n) }, equal,
			func(b []int) error { return mpi.Gather(e.ctx, e.c, nums(me, 0, 2), b, root) },
			func(b []int) (mpi.Request, error) { return mpi.Igather(e.c, nums(me, 0, 2), b, root) })
		both(e, "gatherv", func() []int { return unset(v.elementCount) }, unequal,
			func(b []int) error { return mpi.Gatherv(e.ctx, e.c, own, b, v.counts, v.displs, root) },
			func(b []int) (mpi.Request, error) {
				return mpi.Igatherv(e.c, own, b, v.counts, v.displs, root)
			})
		fresh, send := func() []int { return unset(2 * n) }, nums(me, 0, 2)
		if me == root { // in place
			send, fresh = nil, func() []int { b := unset(2 * n); copy(b[2*me:], nums(me, 0, 2)); return b }
		}
		both(e, "gather in place", fresh, equal,
			func(b []int) error { return mpi.Gather(e.ctx, e.c, send, b, root) },
			func(b []int) (mpi.Request, error) { return mpi.Igather(e.c, send, b, root) })
	}
}

func (e *env) scatter() {
	me, n := e.ranks()
	v := vectorOf(n, func(rank int) int { return rank % 3 })
	for root := range n {
		var equal, unequal []int
		if me == root {
			for rank := range n {
				equal = append(equal, nums(root, rank, 2)...)
			}
			unequal = v.laid(func(rank, k int) []int { return nums(root, rank, k) })
		}
		both(e, "scatter", func() []int { return unset(2) }, nums(root, me, 2),
			func(b []int) error { return mpi.Scatter(e.ctx, e.c, equal, b, root) },
			func(b []int) (mpi.Request, error) { return mpi.Iscatter(e.c, equal, b, root) })
		both(e, "scatterv", func() []int { return unset(v.counts[me]) }, nums(root, me, v.counts[me]),
			func(b []int) error { return mpi.Scatterv(e.ctx, e.c, unequal, v.counts, v.displs, b, root) },
			func(b []int) (mpi.Request, error) {
				return mpi.Iscatterv(e.c, unequal, v.counts, v.displs, b, root)
			})
		recv, want := unset(2), nums(root, me, 2)
		if me == root { // In place, its block does not move.
			recv, want = nil, nil
		}
		e.Check(mpi.Scatter(e.ctx, e.c, equal, recv, root))
		e.must(slices.Equal(recv, want), "scatter in place: %v, want %v", recv, want)
	}
}

func (e *env) allgathers() {
	me, n := e.ranks()
	v := vectorOf(n, func(rank int) int { return rank % 3 })
	own := nums(me, 0, v.counts[me])
	var equal []int
	for rank := range n {
		equal = append(equal, nums(rank, 0, 2)...)
	}
	both(e, "allgather", func() []int { return unset(2 * n) }, equal,
		func(b []int) error { return mpi.Allgather(e.ctx, e.c, nums(me, 0, 2), b) },
		func(b []int) (mpi.Request, error) { return mpi.Iallgather(e.c, nums(me, 0, 2), b) })
	both(e, "allgather in place", func() []int { b := unset(2 * n); copy(b[2*me:], nums(me, 0, 2)); return b }, equal,
		func(b []int) error { return mpi.Allgather(e.ctx, e.c, nil, b) },
		func(b []int) (mpi.Request, error) { return mpi.Iallgather(e.c, nil, b) })
	both(e, "allgatherv", func() []int { return unset(v.elementCount) }, v.laid(func(rank, k int) []int { return nums(rank, 0, k) }),
		func(b []int) error { return mpi.Allgatherv(e.ctx, e.c, own, b, v.counts, v.displs) },
		func(b []int) (mpi.Request, error) { return mpi.Iallgatherv(e.c, own, b, v.counts, v.displs) })
}

func (e *env) alltoall() {
	me, n := e.ranks()
	var given, equal []int
	for rank := range n {
		given, equal = append(given, nums(me, rank, 2)...), append(equal, nums(rank, me, 2)...)
	}
	both(e, "alltoall", func() []int { return unset(2 * n) }, equal,
		func(b []int) error { return mpi.Alltoall(e.ctx, e.c, given, b) },
		func(b []int) (mpi.Request, error) { return mpi.Ialltoall(e.c, given, b) })
	both(e, "alltoall in place", func() []int { return slices.Clone(given) }, equal,
		func(b []int) error { return mpi.Alltoall(e.ctx, e.c, nil, b) },
		func(b []int) (mpi.Request, error) { return mpi.Ialltoall(e.c, nil, b) })
	sends := vectorOf(n, func(rank int) int { return (me + 2*rank) % 3 })
	recvs := vectorOf(n, func(rank int) int { return (rank + 2*me) % 3 })
	out := sends.laid(func(rank, k int) []int { return nums(me, rank, k) })
	both(e, "alltoallv", func() []int { return unset(recvs.elementCount) }, recvs.laid(func(rank, k int) []int { return nums(rank, me, k) }),
		func(b []int) error {
			return mpi.Alltoallv(e.ctx, e.c, out, sends.counts, sends.displs, b, recvs.counts, recvs.displs)
		},
		func(b []int) (mpi.Request, error) {
			return mpi.Ialltoallv(e.c, out, sends.counts, sends.displs, b, recvs.counts, recvs.displs)
		})
	alike := vectorOf(n, func(rank int) int { return (me + rank) % 3 })
	both(e, "alltoallv in place", func() []int { return alike.laid(func(rank, k int) []int { return nums(me, rank, k) }) },
		alike.laid(func(rank, k int) []int { return nums(rank, me, k) }),
		func(b []int) error {
			return mpi.Alltoallv(e.ctx, e.c, nil, nil, nil, b, alike.counts, alike.displs)
		},
		func(b []int) (mpi.Request, error) {
			return mpi.Ialltoallv(e.c, nil, nil, nil, b, alike.counts, alike.displs)
		})
}

// noElements checks operations without elements.
func (e *env) noElements() {
	me, n := e.ranks()
	var none []int
	zeros, sum := make([]int, n), mpi.Sum[int]()
	e.Check(mpi.Bcast(e.ctx, e.c, none, 0))
	e.Check(mpi.Reduce(e.ctx, e.c, []int{}, none, sum, 0))
	e.Check(mpi.Allreduce(e.ctx, e.c, []int{}, none, sum))
	e.Check(mpi.ReduceScatter(e.ctx, e.c, []int{}, none, zeros, sum))
	e.Check(mpi.Gatherv(e.ctx, e.c, []int{}, none, zeros, nil, 0))
	e.Check(mpi.Alltoallv(e.ctx, e.c, []int{}, zeros, zeros, none, zeros, nil))
	got := []int{-1}
	e.Check(mpi.Allgather(e.ctx, e.c, []int{}, got))
	e.must(got[0] == -1, "rank %d: allgather of nothing has written %d", me, got[0])
}

// wrongArguments checks that the caller gets the error at once, and that the communicator stays usable.
func (e *env) wrongArguments() {
	_, n := e.ranks()
	buf, sum := make([]int, n), mpi.Sum[int]()
	e.Is("a root out of range", mpi.Bcast(e.ctx, e.c, buf, n), mpi.ErrRank)
	e.Is("a negative root", mpi.Gather(e.ctx, e.c, buf, buf, -1), mpi.ErrRank)
	e.Is("a short result", mpi.Allreduce(e.ctx, e.c, buf, buf[:n-1], sum), mpi.ErrTruncate)
	e.Is("a short result of an allgather", mpi.Allgather(e.ctx, e.c, []int{1, 2}, buf), mpi.ErrTruncate)
	e.Is("too few counts", mpi.Allgatherv(e.ctx, e.c, nil, buf, make([]int, n-1), nil), mpi.ErrRank)
	_, err := mpi.Iscan(e.c, buf, buf[:n-1], sum)
	e.Is("a short result of an iscan", err, mpi.ErrTruncate)
	e.Check(mpi.Barrier(e.ctx, e.c))
}
