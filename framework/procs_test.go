package framework

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// someProcs draws a list that has runs of several strides and namespaces, and processes without a pattern. A process may be listed twice.
func someProcs(t *rapid.T) []Proc {
	var list []Proc
	for range rapid.IntRange(0, 6).Draw(t, "parts") {
		run := ProcRun{
			Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"),
			First:     uint32(rapid.IntRange(1000, 2000).Draw(t, "first")),
			Stride:    int32(rapid.IntRange(-3, 3).Draw(t, "stride")),
		}
		for i := range rapid.SampledFrom([]int{1, 2, 5, shortestRun - 1, shortestRun, 3 * shortestRun}).Draw(t, "count") {
			list = append(list, run.At(i))
		}
	}
	return list
}

func TestProcs_AnyList_EqualsTheSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, other := someProcs(t), someProcs(t)
		l, o := ProcsOf(list...), ProcsOf(other...)
		if l.Len() != len(list) || !slices.Equal(l.List(), list) {
			t.Fatalf("%v became %v", list, l.List())
		}
		find, kept := l.Lookup(), l.Finder()
		for i, p := range list {
			if l.At(i) != p {
				t.Fatalf("%v is at %d, want %v", l.At(i), i, p)
			}
			if want := slices.Index(list, p); l.Index(p) != want || find(p) != want || kept(p) != want {
				t.Fatalf("%v has index %d, by Lookup %d, by Finder %d, want %d", p, l.Index(p), find(p), kept(p), want)
			}
		}
		for _, p := range other {
			if want := slices.Index(list, p); l.Index(p) != want || find(p) != want || kept(p) != want {
				t.Fatalf("%v has index %d, by Lookup %d, by Finder %d, want %d", p, l.Index(p), find(p), kept(p), want)
			}
		}
		if l.Equal(o) != slices.Equal(list, other) || !l.Equal(ProcsOf(list...)) {
			t.Fatalf("%v and %v: equal is %t", list, other, l.Equal(o))
		}
	})
}

// TestProcsRuns_Expanded_AreTheList checks also that no run continues the one before it.
func TestProcsRuns_Expanded_AreTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := someProcs(t)
		var expanded []Proc
		var last ProcRun
		for run := range ProcsOf(list...).Runs() {
			if run.Count == 0 || (run.Count == 1) != (run.Stride == 0) {
				t.Fatalf("malformed run %+v", run)
			}
			if next := run.At(0); last.extend(next) {
				t.Fatalf("%+v continues the run before it", run)
			}
			last = run
			for i := range int(run.Count) {
				if run.Index(run.At(i).Rank) != i {
					t.Fatalf("%+v: rank %d has index %d", run, run.At(i).Rank, run.Index(run.At(i).Rank))
				}
				expanded = append(expanded, run.At(i))
			}
		}
		if !slices.Equal(expanded, list) {
			t.Fatalf("%v became %v", list, expanded)
		}
	})
}

// bytes returns the memory of the blocks.
func (l Procs) bytes() int {
	const block = 16 + 3*4 + 4 + 24 + 8
	bytes := cap(l.blocks) * block
	for _, b := range l.blocks {
		bytes += 4 * cap(b.ranks)
	}
	return bytes
}

func TestProcs_Memory_IsRunsOrFourBytes(t *testing.T) {
	const n = 100_000
	job := func(f func(i int) int) []Proc {
		list := make([]Proc, n)
		for i := range list {
			list[i] = Proc{Namespace: "job", Rank: uint32(f(i))}
		}
		return list
	}
	for name, c := range map[string]struct {
		list  []Proc
		bytes int
	}{
		"consecutive":        {job(func(i int) int { return i }), 64},
		"every third":        {job(func(i int) int { return 3 * i }), 64},
		"descending":         {job(func(i int) int { return n - i }), 64},
		"by nodes of 100":    {job(func(i int) int { return i%1000*100 + i/1000 }), 70 * 100},
		"no pattern":         {job(func(i int) int { return i * 7919 % n * 31 % n }), 4*n + n/8},
		"runs and outliers":  {job(func(i int) int { return i + i%33/32*n }), 4*n + n/8},
		"pairs":              {job(func(i int) int { return 3*(i/2) + i%2 }), 4*n + n/8},
		"largest rank first": {[]Proc{{Rank: math.MaxUint32}, {Rank: 0}, {Rank: math.MaxUint32 - 1}}, 80},
	} {
		l := ProcsOf(c.list...)
		if l.bytes() > c.bytes || !slices.Equal(l.List(), c.list) {
			t.Errorf("%s: %d bytes for %d processes, want at most %d", name, l.bytes(), len(c.list), c.bytes)
		}
	}
	if l := ConsecutiveProcs("job", 4, n); !l.Equal(ProcsOf(l.List()...)) || l.At(n-1).Rank != n+3 {
		t.Error("consecutive processes differ from their list")
	}
	if l := ConsecutiveProcs("job", 4, 0); l.Len() != 0 || len(l.List()) != 0 || !l.Equal(Procs{}) || !ConsecutiveProcs("job", 4, 1).Equal(ProcsOf(Proc{"job", 4})) {
		t.Error("an empty list or a list of one differs")
	}
}
