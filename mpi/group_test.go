package mpi

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/bootstrap"
)

// someGroup is a group of ranks 0 to n-1 of a job in which this process is me.
func someGroup(n int, me uint32) *Group {
	s := &Session{engine: &engine{identity: bootstrap.Identity{Proc: Proc{Namespace: "job", Rank: me}}}}
	members := make([]Proc, n)
	for i := range members {
		members[i] = Proc{Namespace: "job", Rank: uint32(i)}
	}
	return newGroup(s, members)
}

func ranksOf(g *Group) []int {
	var ranks []int
	for _, p := range g.Members() {
		ranks = append(ranks, int(p.Rank))
	}
	return ranks
}

func TestGroupOperationsKeepTheStandardsOrder(t *testing.T) {
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

func TestGroupAlgebra(t *testing.T) {
	g := someGroup(12, 0)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *Group {
			ranks := rapid.SliceOfNDistinct(rapid.IntRange(0, 11), 0, 12, rapid.ID).Draw(t, name)
			x, err := g.Incl(ranks...)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		a, b := draw("a"), draw("b")
		if u := a.Union(b); u.Size() != a.Size()+b.Size()-a.Intersection(b).Size() || a.Intersection(b).Union(a.Difference(b)).Compare(a) > Similar {
			t.Fatalf("%v and %v: union %v", ranksOf(a), ranksOf(b), ranksOf(u))
		}
		if a.Union(b).Compare(b.Union(a)) == Unequal {
			t.Fatal("union has other members when turned round")
		}
	})
}
