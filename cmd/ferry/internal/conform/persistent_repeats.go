package conform

import (
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// persistentRepeats starts each operation three times, with other contents each time.
func (e *env) persistentRepeats() {
	r := newRepeats(e)
	for _, x := range slices.Concat(r.equalBlocks(), r.blocksOfSizes(), r.partialResults()) {
		r.start(x)
	}
	r.startBcast()
}

// repeatStarts is the number of starts of each operation.
const repeatStarts = 3

// repeats has the buffers of persistentRepeats, which the operations share.
type repeats struct {
	*env
	rank, size, root int
	sumOp            mpi.Op[int]
	// Contributions, risingBlock of rank+1 elements. The content of each element is the rank plus the number of the start.
	oneElement, elementPerRank, risingBlock []int
	// Results; risingResults has rank+1 elements from each rank.
	oneResult, resultPerRank, risingResults []int
	// Block sizes of resultPerRank and risingResults.
	unitCounts, risingCounts []int
}

func newRepeats(e *env) *repeats {
	r := &repeats{env: e, sumOp: mpi.Sum[int]()}
	r.rank, r.size = e.ranks()
	r.root = r.size - 1
	r.unitCounts, r.risingCounts = slices.Repeat([]int{1}, r.size), upFrom(1, r.size)
	r.oneElement, r.elementPerRank, r.risingBlock = make([]int, 1), make([]int, r.size), make([]int, r.rank+1)
	r.oneResult, r.resultPerRank, r.risingResults = make([]int, 1), make([]int, r.size), make([]int, r.size*(r.size+1)/2)
	return r
}

// A repeated is an operation with its result after a start.
type repeated struct {
	opName    string
	initOp    func() (*mpi.Persistent, error)
	gotResult []int
	wantAfter func(round int) []int
}

// total is the sum of the contributions of all ranks.
func (r *repeats) total(round int) []int { return []int{r.size*(r.size-1)/2 + r.size*round} }

// each has the contributions of all ranks.
func (r *repeats) each(round int) []int { return upFrom(round, r.size) }

// equalBlocks returns the operations with blocks of one element, and a result in each rank.
func (r *repeats) equalBlocks() []repeated {
	ctx, c, root, sum := r.ctx, r.c, r.root, r.sumOp
	fromRoot := func(round int) []int { return []int{root + round} }
	return []repeated{
		{"barrier", func() (*mpi.Persistent, error) { return mpi.BarrierInit(ctx, c) }, nil, func(int) []int { return nil }},
		{"allreduce", func() (*mpi.Persistent, error) { return mpi.AllreduceInit(ctx, c, r.oneElement, r.oneResult, sum) }, r.oneResult, r.total},
		{"allgather", func() (*mpi.Persistent, error) { return mpi.AllgatherInit(ctx, c, r.oneElement, r.resultPerRank) }, r.resultPerRank, r.each},
		{"alltoall", func() (*mpi.Persistent, error) { return mpi.AlltoallInit(ctx, c, r.elementPerRank, r.resultPerRank) }, r.resultPerRank, r.each},
		{"reduce_scatter_block", func() (*mpi.Persistent, error) {
			return mpi.ReduceScatterBlockInit(ctx, c, r.elementPerRank, r.oneResult, sum)
		}, r.oneResult, r.total},
		{"scatter", func() (*mpi.Persistent, error) { return mpi.ScatterInit(ctx, c, r.elementPerRank, r.oneResult, root) }, r.oneResult, fromRoot},
		{"scatterv", func() (*mpi.Persistent, error) {
			return mpi.ScattervInit(ctx, c, r.elementPerRank, r.unitCounts, nil, r.oneResult, root)
		}, r.oneResult, fromRoot},
	}
}

// blocksOfSizes returns the other operations with block sizes and a result in each rank.
func (r *repeats) blocksOfSizes() []repeated {
	ctx, c := r.ctx, r.c
	return []repeated{
		{"alltoallv", func() (*mpi.Persistent, error) {
			return mpi.AlltoallvInit(ctx, c, r.elementPerRank, r.unitCounts, nil, r.resultPerRank, r.unitCounts, nil)
		}, r.resultPerRank, r.each},
		{"reduce_scatter", func() (*mpi.Persistent, error) {
			return mpi.ReduceScatterInit(ctx, c, r.elementPerRank, r.oneResult, r.unitCounts, r.sumOp)
		}, r.oneResult, r.total},
		{"allgatherv", func() (*mpi.Persistent, error) {
			return mpi.AllgathervInit(ctx, c, r.risingBlock, r.risingResults, r.risingCounts, nil)
		}, r.risingResults, func(round int) []int {
			var want []int
			for rank := range r.size {
				want = append(want, slices.Repeat([]int{rank + round}, rank+1)...)
			}
			return want
		}},
	}
}

// partialResults returns the operations with results that differ between ranks, or that only the root has.
func (r *repeats) partialResults() []repeated {
	ctx, c, root, sum := r.ctx, r.c, r.root, r.sumOp
	atRoot := func(want func(int) []int) func(int) []int {
		if r.rank == root {
			return want
		}
		return func(round int) []int { return unset(len(want(round))) }
	}
	return []repeated{
		{"scan", func() (*mpi.Persistent, error) { return mpi.ScanInit(ctx, c, r.oneElement, r.oneResult, sum) }, r.oneResult, func(round int) []int {
			return []int{r.rank*(r.rank+1)/2 + (r.rank+1)*round}
		}},
		{"exscan", func() (*mpi.Persistent, error) { return mpi.ExscanInit(ctx, c, r.oneElement, r.oneResult, sum) }, r.oneResult, func(round int) []int {
			if r.rank == 0 {
				return unset(1)
			}
			return []int{r.rank*(r.rank-1)/2 + r.rank*round}
		}},
		{"reduce", func() (*mpi.Persistent, error) { return mpi.ReduceInit(ctx, c, r.oneElement, r.oneResult, sum, root) }, r.oneResult, atRoot(r.total)},
		{"gather", func() (*mpi.Persistent, error) { return mpi.GatherInit(ctx, c, r.oneElement, r.resultPerRank, root) }, r.resultPerRank, atRoot(r.each)},
		{"gatherv", func() (*mpi.Persistent, error) {
			return mpi.GathervInit(ctx, c, r.oneElement, r.resultPerRank, r.unitCounts, nil, root)
		}, r.resultPerRank, atRoot(r.each)},
	}
}

// start starts an operation several times, and checks the results.
func (r *repeats) start(x repeated) {
	p := need(x.initOp())(r.env)
	for round := range repeatStarts {
		for _, contribution := range [][]int{r.oneElement, r.elementPerRank, r.risingBlock} {
			for i := range contribution {
				contribution[i] = r.rank + round
			}
		}
		copy(x.gotResult, unset(len(x.gotResult)))
		r.Check(p.Start())
		r.none("persistent " + x.opName)(p.Wait(r.ctx))
		want := x.wantAfter(round)
		r.must(slices.Equal(x.gotResult, want), "persistent %s, start %d: %v, want %v", x.opName, round, x.gotResult, want)
	}
	r.Check(p.Free())
}

// startBcast is start of a Bcast, which has one buffer.
func (r *repeats) startBcast() {
	buf := make([]int, 3)
	p := need(mpi.BcastInit(r.ctx, r.c, buf, r.root))(r.env)
	for round := range repeatStarts {
		want := upFrom(round, len(buf))
		if r.rank == r.root {
			copy(buf, want)
		}
		r.Check(p.Start())
		r.none("persistent bcast")(p.Wait(r.ctx))
		r.must(slices.Equal(buf, want), "persistent bcast, start %d: %v, want %v", round, buf, want)
	}
	r.Check(p.Free())
}
