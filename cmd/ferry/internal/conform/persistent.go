package conform

import (
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func persistentCases() []Case {
	return []Case{
		of("collective/alltoallw", "6.8", 1, (*env).alltoallw),
		of("collective/nonblocking and persistent alltoallw", "6.12", 1, (*env).alltoallwForms),
		of("collective/layouts", "6.5", 1, (*env).layoutCollectives),
		of("collective/persistent ones repeat", "6.13", 1, (*env).persistentRepeats),
		of("collective/persistent ones start in any order", "6.13", 2, (*env).persistentOrder),
	}
}

// alltoallw sends every n-th byte of a buffer to each rank, which stores the bytes one behind the other.
func (e *env) alltoallw() {
	const k = 5
	me, n := e.ranks()
	out, got := pattern(k*n, me, 1), make([]byte, k*n)
	every, blocks := make([]mpi.Layout, n), make([]mpi.Layout, n)
	var want []byte
	for i := range n {
		every[i], blocks[i] = mpi.Vector(k, 1, n).At(i), mpi.Vector(1, k, 0).At(i*k)
		for j := range k {
			want = append(want, pattern(k*n, i, 1)[j*n+me])
		}
	}
	e.Check(mpi.Alltoallw(e.ctx, e.c, out, every, got, blocks))
	e.Same("alltoallw", got, want)
	// In place, each byte is replaced by the byte that comes from there.
	e.Check(mpi.Alltoallw(e.ctx, e.c, nil, nil, out, every))
	for i := range n {
		for j := range k {
			e.must(out[j*n+i] == want[i*k+j], "in place, byte %d from rank %d: %d, want %d", j, i, out[j*n+i], want[i*k+j])
		}
	}
}

// columns returns a layout for each rank, its column of a matrix of k rows and n columns.
func columns(k, n int) []mpi.Layout {
	layouts := make([]mpi.Layout, n)
	for i := range layouts {
		layouts[i] = mpi.Vector(k, 1, n).At(i)
	}
	return layouts
}

// alltoallwForms exchanges columns, which arrive as the columns of their senders.
func (e *env) alltoallwForms() {
	const k = 5
	me, n := e.ranks()
	out, got, want, cols := make([]byte, k*n), make([]byte, k*n), make([]byte, k*n), columns(k, n)
	fill := func(round int) {
		copy(out, pattern(k*n, me, round))
		for i := range n {
			for j := range k {
				want[j*n+i] = pattern(k*n, i, round)[j*n+me]
			}
		}
	}
	fill(0)
	e.none("ialltoallw")(need(mpi.Ialltoallw(e.c, out, cols, got, cols))(e).Wait(e.ctx))
	e.Same("ialltoallw", got, want)
	p := need(mpi.AlltoallwInit(e.ctx, e.c, out, cols, got, cols))(e)
	for round := range 3 {
		fill(round)
		e.Check(p.Start())
		e.none("persistent alltoallw")(p.Wait(e.ctx))
		e.Same("persistent alltoallw", got, want)
	}
	e.Check(p.Free())
}

// layoutCollectives gathers, broadcasts and scatters columns. Members without layouts take part in the same operations.
func (e *env) layoutCollectives() {
	const k = 5
	me, n := e.ranks()
	root := n - 1
	mine, matrix, cols, counts := pattern(k, me, 1), make([]byte, k*n), columns(k, n), slices.Repeat([]int{k}, n)
	e.Check(mpi.AllgatherLayout(e.ctx, e.c, mine, mpi.Vector(1, k, 0), matrix, cols))
	for i := range n {
		for j, b := range pattern(k, i, 1) {
			e.must(matrix[j*n+i] == b, "row %d, column %d: %d, want %d", j, i, matrix[j*n+i], b)
		}
	}
	column := make([]byte, k)
	if me == root {
		e.Check(mpi.BcastLayout(e.ctx, e.c, matrix, cols[0], root))
	} else {
		e.Check(mpi.Bcast(e.ctx, e.c, column, root))
		e.Same("bcast of a column", column, pattern(k, 0, 1))
	}
	if me == root {
		e.Check(mpi.ScatterLayout(e.ctx, e.c, matrix, cols, column, mpi.Vector(1, k, 0), root))
	} else {
		e.Check(mpi.Scatterv(e.ctx, e.c, nil, counts, nil, column, root))
	}
	e.Same("scatter of columns", column, mine)
	clear(matrix)
	if me == root {
		e.Check(mpi.GatherLayout(e.ctx, e.c, column, mpi.Vector(1, k, 0), matrix, cols, root))
		for i := range n {
			_ = need(cols[i].Pack(column, matrix))(e)
			e.Same("gather of columns", column, pattern(k, i, 1))
		}
	} else {
		e.Check(mpi.Gatherv(e.ctx, e.c, column, nil, counts, nil, root))
	}
}

// persistentOrder starts several operations in another order in each rank, beside a nonblocking one.
func (e *env) persistentOrder() {
	me, n := e.ranks()
	const many = 4
	ps, sums, in := make([]*mpi.Persistent, many), make([][]int, many), []int{me}
	for i := range ps {
		sums[i] = make([]int, 1)
		ps[i] = need(mpi.AllreduceInit(e.ctx, e.c, []int{me * (i + 1)}, sums[i], mpi.Sum[int]()))(e)
	}
	for round := range 3 {
		out := make([]int, 1)
		r := need(mpi.Iallreduce(e.c, in, out, mpi.Sum[int]()))(e)
		reqs := []mpi.Request{r}
		for i := range ps {
			p := ps[(i+me+round)%many]
			e.Check(p.Start())
			reqs = append(reqs, p.Request())
		}
		e.Is("start of an active operation", ps[0].Start(), mpi.ErrPending)
		e.Check(mpi.WaitAll(e.ctx, reqs, nil))
		for i := range ps {
			want := (i + 1) * n * (n - 1) / 2
			e.must(sums[i][0] == want, "operation %d: %d, want %d", i, sums[i][0], want)
			sums[i][0] = 0
		}
		e.must(out[0] == n*(n-1)/2, "nonblocking operation: %d", out[0])
	}
	for _, p := range ps {
		e.Check(p.Free())
	}
}

// upFrom is n numbers from first on.
func upFrom(first, n int) []int {
	s := upTo(n)
	for i := range s {
		s[i] += first
	}
	return s
}
