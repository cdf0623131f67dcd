package conform

import (
	"context"
	"errors"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func groupCases() []Case {
	return []Case{
		{"group/of a communicator", "7.3.1", 1, groupOf},
		{"group/union, intersection, difference", "7.3.2", 1, groupSets},
		{"group/include and exclude", "7.3.2", 1, groupLists},
		{"group/ranges", "7.3.2", 1, groupRanges},
		{"group/translate ranks", "7.3.1", 1, groupTranslate},
		{"group/empty", "7.3.2", 1, groupEmpty},
	}
}

func groupOf(_ context.Context, e Env) error {
	g := e.Comm.Group()
	reversed := upTo(g.Size())
	slices.Reverse(reversed)
	r, err := g.Incl(reversed...)
	if err != nil {
		return err
	}
	want := mpi.Similar
	if g.Size() == 1 {
		want = mpi.Identical
	}
	first, err := g.Incl(0)
	if err != nil {
		return err
	}
	wantFirst := mpi.Unequal
	if g.Size() == 1 {
		wantFirst = mpi.Identical
	}
	return errors.Join(
		must(g.Size() == e.Comm.Size() && g.Rank() == e.Comm.Rank(), "rank %d of %d", g.Rank(), g.Size()),
		must(len(g.Members()) == g.Size(), "%d members", len(g.Members())),
		must(g.Compare(g) == mpi.Identical, "itself: %v", g.Compare(g)), must(g.Compare(r) == want, "reversed: %v", g.Compare(r)),
		must(g.Compare(first) == wantFirst, "the first alone: %v", g.Compare(first)),
		must(r.Rank() == g.Size()-1-g.Rank(), "rank %d in the reversed group", r.Rank()))
}

// in checks a group's members, by their ranks in all.
func in(what string, got, all *mpi.Group, want ...int) error {
	ranks, err := got.Translate(upTo(got.Size()), all)
	return errors.Join(err, must(slices.Equal(ranks, want), "%s: %v, want %v", what, ranks, want))
}

func groupSets(_ context.Context, e Env) error {
	all := e.Comm.Group()
	n := all.Size()
	lower, err := all.Incl(upTo((n + 1) / 2)...)
	if err != nil {
		return err
	}
	var even []int
	for r := (n - 1) &^ 1; r >= 0; r -= 2 {
		even = append(even, r)
	}
	evens, err := all.Incl(even...) // downwards
	if err != nil {
		return err
	}
	union := upTo((n + 1) / 2) // first those of the first group, then the rest of the second in its order
	var both, less []int
	for _, r := range even {
		if r >= (n+1)/2 {
			union = append(union, r)
		}
	}
	for _, r := range upTo((n + 1) / 2) {
		if r%2 == 0 {
			both = append(both, r) // in the order of the first group
		} else {
			less = append(less, r)
		}
	}
	return errors.Join(in("union", lower.Union(evens), all, union...), in("intersection", lower.Intersection(evens), all, both...),
		in("difference", lower.Difference(evens), all, less...), in("with itself", all.Difference(all), all),
		in("union with itself", all.Union(all), all, upTo(n)...))
}

func groupLists(_ context.Context, e Env) error {
	all := e.Comm.Group()
	n := all.Size()
	last, err := all.Incl(n-1, 0)
	if n == 1 {
		last, err = all.Incl(0)
	}
	if err != nil {
		return err
	}
	want := []int{n - 1, 0}
	if n == 1 {
		want = want[:1]
	}
	rest, err := all.Excl(n - 1)
	_, high := all.Incl(n)
	_, low := all.Excl(-1)
	_, twice := all.Incl(0, 0)
	return errors.Join(err, in("include", last, all, want...), in("exclude", rest, all, upTo(n-1)...),
		answers("include out of range", high, mpi.ErrRank), answers("exclude out of range", low, mpi.ErrRank), answers("include twice", twice, mpi.ErrRank))
}

func groupRanges(_ context.Context, e Env) error {
	all := e.Comm.Group()
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
	ranges := []mpi.Range{{First: n - 1, Last: 0, Stride: -2}}
	a, errA := all.RangeIncl(ranges)
	b, errB := all.RangeExcl(ranges)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	none, errNone := all.RangeIncl([]mpi.Range{{First: 0, Last: 0, Stride: 1}})
	_, stride := all.RangeIncl([]mpi.Range{{First: 0, Last: n - 1}})
	_, beyond := all.RangeIncl([]mpi.Range{{First: 0, Last: n, Stride: 1}})
	_, overlap := all.RangeIncl([]mpi.Range{{First: 0, Last: n - 1, Stride: 1}, {First: 0, Last: 0, Stride: 1}})
	return errors.Join(errNone, in("range", a, all, down...), in("all but the range", b, all, odd...), in("one", none, all, 0),
		answers("stride 0", stride, mpi.ErrRank), answers("beyond the group", beyond, mpi.ErrRank), answers("ranges that overlap", overlap, mpi.ErrRank))
}

func groupTranslate(_ context.Context, e Env) error {
	all := e.Comm.Group()
	rest, err := all.Excl(0)
	if err != nil {
		return err
	}
	ranks, err := all.Translate([]int{0, mpi.ProcNull, all.Size() - 1}, rest)
	want := []int{mpi.Undefined, mpi.ProcNull, all.Size() - 2}
	if all.Size() == 1 {
		want[2] = mpi.Undefined
	}
	_, wrong := all.Translate([]int{all.Size()}, rest)
	return errors.Join(err, must(slices.Equal(ranks, want), "%v, want %v", ranks, want), answers("out of range", wrong, mpi.ErrRank))
}

func groupEmpty(ctx context.Context, e Env) error {
	all := e.Comm.Group()
	empty, err := all.Incl()
	if err != nil {
		return err
	}
	_, comm := mpi.CommFromGroup(ctx, empty, "conform.empty")
	return errors.Join(must(empty.Size() == 0 && empty.Rank() == mpi.Undefined, "size %d, rank %d", empty.Size(), empty.Rank()),
		must(empty.Compare(all.Difference(all)) == mpi.Identical, "two empty groups: %v", empty.Compare(all.Difference(all))),
		answers("communicator of an empty group", comm, mpi.ErrNoComm),
		in("union with nothing", empty.Union(all), all, upTo(all.Size())...), in("intersection with nothing", empty.Intersection(all), all))
}
