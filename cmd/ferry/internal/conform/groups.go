package conform

import (
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func groupCases() []Case {
	return []Case{
		of("group/of a communicator", "7.3.1", 1, (*env).groupOf),
		of("group/union, intersection, difference", "7.3.2", 1, (*env).groupSets),
		of("group/include and exclude", "7.3.2", 1, (*env).groupLists),
		of("group/ranges", "7.3.2", 1, (*env).groupRanges),
		of("group/translate ranks", "7.3.1", 1, (*env).groupTranslate),
		of("group/empty", "7.3.2", 1, (*env).groupEmpty),
	}
}

func (e *env) groupOf() {
	g := e.c.Group()
	backwards := upTo(g.Size())
	slices.Reverse(backwards)
	reversed, first := e.incl(g, backwards...), e.incl(g, 0)
	want, wantFirst := mpi.Similar, mpi.Unequal
	if g.Size() == 1 {
		want, wantFirst = mpi.Identical, mpi.Identical
	}
	e.must(g.Size() == e.c.Size() && g.Rank() == e.c.Rank(), "rank %d of %d", g.Rank(), g.Size())
	e.must(len(g.Members()) == g.Size(), "%d members", len(g.Members()))
	e.must(g.Compare(g) == mpi.Identical, "itself: %v", g.Compare(g))
	e.must(g.Compare(reversed) == want, "reversed: %v", g.Compare(reversed))
	e.must(g.Compare(first) == wantFirst, "the first alone: %v", g.Compare(first))
	e.must(reversed.Rank() == g.Size()-1-g.Rank(), "rank %d in the reversed group", reversed.Rank())
}

// in checks a group's members, by their ranks in all.
func (e *env) in(what string, got, all *mpi.Group, want ...int) {
	ranks := need(got.Translate(upTo(got.Size()), all))(e)
	e.must(slices.Equal(ranks, want), "%s: %v, want %v", what, ranks, want)
}

func (e *env) groupSets() {
	all := e.c.Group()
	n := all.Size()
	half := upTo((n + 1) / 2)
	var even []int
	for r := (n - 1) &^ 1; r >= 0; r -= 2 {
		even = append(even, r)
	}
	lower, evens := e.incl(all, half...), e.incl(all, even...) // downwards
	union := slices.Clone(half)                                // first those of the first group, then the rest of the second in its order
	var both, less []int
	for _, r := range even {
		if r >= len(half) {
			union = append(union, r)
		}
	}
	for _, r := range half {
		if r%2 == 0 {
			both = append(both, r) // in the order of the first group
		} else {
			less = append(less, r)
		}
	}
	e.in("union", lower.Union(evens), all, union...)
	e.in("intersection", lower.Intersection(evens), all, both...)
	e.in("difference", lower.Difference(evens), all, less...)
	e.in("difference with itself", all.Difference(all), all)
	e.in("union with itself", all.Union(all), all, upTo(n)...)
}

// ends are the last rank and the first, or the only one.
func (e *env) ends() []int { return slices.Compact([]int{e.c.Size() - 1, 0}) }

func (e *env) groupLists() {
	all := e.c.Group()
	n := all.Size()
	rest := need(all.Excl(n - 1))(e)
	e.in("include", e.incl(all, e.ends()...), all, e.ends()...)
	e.in("exclude", rest, all, upTo(n-1)...)
	_, high := all.Incl(n)
	_, low := all.Excl(-1)
	_, twice := all.Incl(0, 0)
	e.Is("include out of range", high, mpi.ErrRank)
	e.Is("exclude out of range", low, mpi.ErrRank)
	e.Is("include twice", twice, mpi.ErrRank)
}

func (e *env) groupRanges() {
	all := e.c.Group()
	n := all.Size()
	var down, odd []int
	for r := n - 1; r >= 0; r -= 2 {
		down = append(down, r)
	}
	for r := range n {
		if !slices.Contains(down, r) {
			odd = append(odd, r)
		}
	}
	include := func(ranges ...mpi.Range) *mpi.Group {
		return need(all.RangeIncl(ranges))(e)
	}
	refused := func(what string, ranges ...mpi.Range) {
		_, err := all.RangeIncl(ranges)
		e.Is(what, err, mpi.ErrRank)
	}
	step := mpi.Range{First: n - 1, Last: 0, Stride: -2}
	rest := need(all.RangeExcl([]mpi.Range{step}))(e)
	e.in("range", include(step), all, down...)
	e.in("all but the range", rest, all, odd...)
	e.in("one", include(mpi.Range{First: 0, Last: 0, Stride: 1}), all, 0)
	refused("stride 0", mpi.Range{First: 0, Last: n - 1})
	refused("beyond the group", mpi.Range{First: 0, Last: n, Stride: 1})
	refused("ranges that overlap", mpi.Range{First: 0, Last: n - 1, Stride: 1}, mpi.Range{First: 0, Last: 0, Stride: 1})
}

func (e *env) groupTranslate() {
	all := e.c.Group()
	rest := need(all.Excl(0))(e)
	ranks, err := all.Translate([]int{0, mpi.ProcNull, all.Size() - 1}, rest)
	want := []int{mpi.Undefined, mpi.ProcNull, all.Size() - 2}
	if all.Size() == 1 {
		want[2] = mpi.Undefined
	}
	e.must(err == nil && slices.Equal(ranks, want), "%v, %v, want %v", ranks, err, want)
	_, err = all.Translate([]int{all.Size()}, rest)
	e.Is("out of range", err, mpi.ErrRank)
}

func (e *env) groupEmpty() {
	all := e.c.Group()
	empty := e.incl(all)
	e.must(empty.Size() == 0 && empty.Rank() == mpi.Undefined, "size %d, rank %d", empty.Size(), empty.Rank())
	e.must(empty.Compare(all.Difference(all)) == mpi.Identical, "two empty groups: %v", empty.Compare(all.Difference(all)))
	_, err := mpi.CommFromGroup(e.ctx, empty, "conform.empty")
	e.Is("communicator of an empty group", err, mpi.ErrNoComm)
	e.in("union with nothing", empty.Union(all), all, upTo(all.Size())...)
	e.in("intersection with nothing", empty.Intersection(all), all)
}
