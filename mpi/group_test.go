package mpi

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// someGroup returns a group of the ranks 0 to n-1 of a job. This process is rank me.
func someGroup(n int, me uint32) *Group {
	s := &Session{process: &process{identity: bootstrap.Identity{Proc: Proc{Namespace: "job", Rank: me}}}}
	return newGroup(s, framework.ConsecutiveProcs("job", 0, n))
}

func ranksOf(g *Group) []int {
	var ranks []int
	for _, p := range g.Members() {
		ranks = append(ranks, int(p.Rank))
	}
	return ranks
}

func TestGroup_Operations_KeepStandardOrder(t *testing.T) {
	g := someGroup(10, 3)
	incl := func(ranks ...int) *Group {
		x, err := g.Incl(ranks...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	a, b := incl(5, 3, 1), incl(1, 2, 3)
	for name, c := range map[string]struct {
		got  *Group
		want []int
	}{
		"union":        {a.Union(b), []int{5, 3, 1, 2}},
		"intersection": {a.Intersection(b), []int{3, 1}},
		"difference":   {a.Difference(b), []int{5}},
		"with nil":     {a.Union(nil), []int{5, 3, 1}},
		"nil with":     {(*Group)(nil).Union(a), []int{5, 3, 1}},
	} {
		if !slices.Equal(ranksOf(c.got), c.want) {
			t.Errorf("%s: %v, want %v", name, ranksOf(c.got), c.want)
		}
	}
	if a.Rank() != 1 || a.Difference(b).Rank() != Undefined {
		t.Errorf("own ranks %d, %d", a.Rank(), a.Difference(b).Rank())
	}
	if a.Compare(incl(1, 3, 5)) != Similar || a.Compare(b) != Unequal || a.Compare(incl(5, 3, 1)) != Identical {
		t.Error("Compare")
	}
	excl, err := g.RangeExcl([]Range{{9, 1, -2}, {0, 0, 5}})
	if err != nil || !slices.Equal(ranksOf(excl), []int{2, 4, 6, 8}) {
		t.Errorf("%v, %v", ranksOf(excl), err)
	}
	ranged, err := g.RangeIncl([]Range{{6, 2, -2}, {7, 9, 1 << 62}, {0, 1, 1}})
	if err != nil || !slices.Equal(ranksOf(ranged), []int{6, 4, 2, 7, 0, 1}) {
		t.Errorf("%v, %v", ranksOf(ranged), err)
	}
	there, err := b.Translate([]int{0, 1, ProcNull, 2}, a)
	if err != nil || !slices.Equal(there, []int{2, Undefined, ProcNull, 1}) {
		t.Errorf("%v, %v", there, err)
	}
}

// listed is the model of a group.
type listed []member

func (l listed) where(keep func(m member) bool) listed {
	var kept listed
	for _, m := range l {
		if keep(m) {
			kept = append(kept, m)
		}
	}
	return kept
}

func (l listed) has(m member) bool { return slices.Contains(l, m) }

// someMembers draws distinct members. Many have ranks in regular sequences, and some are goroutine ranks.
func someMembers(t *rapid.T, of *activation) listed {
	var all listed
	hasRanks := rapid.IntRange(0, 3).Draw(t, "goroutine ranks") == 0
	for range rapid.IntRange(0, 5).Draw(t, "parts") {
		first, stride := rapid.IntRange(0, 99).Draw(t, "first"), rapid.SampledFrom([]int{-2, -1, 1, 2, 7}).Draw(t, "stride")
		namespace := rapid.SampledFrom([]string{"job", "job", "other"}).Draw(t, "namespace")
		for i := range rapid.SampledFrom([]int{1, 1, 2, 40}).Draw(t, "count") {
			m := member{Proc: Proc{Namespace: namespace, Rank: uint32(first+i*stride) % 200}}
			if hasRanks && i%3 == 1 {
				m.activation, m.endpoint = of, uint16(i%2)
			}
			if !all.has(m) {
				all = append(all, m)
			}
		}
	}
	return all
}

func TestGroups_InRuns_EqualLists(t *testing.T) {
	s := &Session{process: &process{identity: bootstrap.Identity{Proc: Proc{Namespace: "job", Rank: 3}}}}
	of := &activation{}
	made := func(l listed) *Group {
		var b memberBuilder
		for _, m := range l {
			b.add(m)
		}
		return groupOf(s, member{Proc: s.process.identity.Proc}, b.list())
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := someMembers(t, of), someMembers(t, of)
		if rapid.Bool().Draw(t, "same members") {
			b = slices.Clone(a)
			rapid.SampledFrom([]func(){func() {}, func() { slices.Reverse(b) }}).Draw(t, "order")()
		}
		same := func(op string, got *Group, err error, want listed) {
			t.Helper()
			members := []member{}
			for rank, m := range got.list().all() {
				if rank != len(members) || got.members.at(rank) != m || got.members.rank(m) != rank {
					t.Fatalf("%s: member %v has rank %d, by position %d", op, m, got.members.rank(m), rank)
				}
				members = append(members, m)
			}
			if err != nil || !slices.Equal(members, want) || !got.members.equal(made(want).members) || got.Size() != len(want) {
				t.Fatalf("%s of %v and %v: %v, %v, want %v", op, a, b, members, err, want)
			}
			rank := slices.Index(want, member{Proc: s.process.identity.Proc})
			if rank < 0 {
				rank = Undefined
			}
			if got.Rank() != rank {
				t.Fatalf("%s of %v and %v: own rank %d, want %d", op, a, b, got.Rank(), rank)
			}
		}
		g, h := made(a), made(b)
		same("union", g.Union(h), nil, slices.Concat(a, b.where(func(m member) bool { return !a.has(m) })))
		same("intersection", g.Intersection(h), nil, a.where(b.has))
		same("difference", g.Difference(h), nil, a.where(func(m member) bool { return !b.has(m) }))

		comparison := Unequal
		if slices.Equal(a, b) {
			comparison = Identical
		} else if len(a) == len(b) && len(a.where(b.has)) == len(a) {
			comparison = Similar
		}
		if got := g.Compare(h); got != comparison {
			t.Fatalf("%v and %v are %v, want %v", a, b, got, comparison)
		}
		var procs []Proc
		for _, m := range a {
			procs = append(procs, m.Proc)
		}
		if !slices.Equal(g.Members(), procs) {
			t.Fatalf("%v has members %v", a, g.Members())
		}
		if len(a) > 0 {
			checkSubgroups(t, g, h, a, b, same)
		}
	})
}

// checkSubgroups checks the groups of some ranks of g, which has the members a, and the translation of the ranks to h, which has the members b.
func checkSubgroups(t *rapid.T, g, h *Group, a, b listed, same func(op string, got *Group, err error, want listed)) {
	ranks := rapid.SliceOfNDistinct(rapid.IntRange(0, len(a)-1), 0, len(a), rapid.ID).Draw(t, "ranks")
	var some listed
	there := []int{}
	for _, r := range ranks {
		some = append(some, a[r])
		if there = append(there, slices.Index(b, a[r])); there[len(there)-1] < 0 {
			there[len(there)-1] = Undefined
		}
	}
	got, err := g.Incl(ranks...)
	same("incl", got, err, some)
	got, err = g.Excl(ranks...)
	same("excl", got, err, a.where(func(m member) bool { return !some.has(m) }))
	if got, err := g.Translate(ranks, h); err != nil || !slices.Equal(got, there) {
		t.Fatalf("ranks %v of %v in %v: %v, %v, want %v", ranks, a, b, got, err, there)
	}
	x := Range{First: rapid.IntRange(0, len(a)-1).Draw(t, "first"), Last: rapid.IntRange(0, len(a)-1).Draw(t, "last"), Stride: rapid.SampledFrom([]int{-3, -1, 1, 2}).Draw(t, "stride")}
	var within listed
	for r := x.First; x.Stride > 0 && r <= x.Last || x.Stride < 0 && r >= x.Last; r += x.Stride {
		within = append(within, a[r])
	}
	got, err = g.RangeIncl([]Range{x})
	same("range incl", got, err, within)
	got, err = g.RangeExcl([]Range{x})
	same("range excl", got, err, a.where(func(m member) bool { return !within.has(m) }))
}
