package sets

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
)

func TestProgress_ChangesInEachState_AreListedByAge(t *testing.T) {
	j := new(job)
	add := Progress{Type: bootstrap.ChangeAdd, Pset: "half", Joining: 2, Members: 3, Requester: 1}
	sub := Progress{Type: bootstrap.ChangeSub, Pset: "other", Leaving: 1, Members: 2, IsOfUser: true}
	for _, step := range []struct {
		line    string
		present int
		want    func() []Progress
	}{
		{"job 3 most=5", 3, func() []Progress { return nil }},
		{"define half 1", 3, func() []Progress { return nil }},
		{"define other 0,2", 3, func() []Progress { return nil }},
		{"1 grow half add=2", 5, func() []Progress { add.IsStarting = true; return []Progress{add} }},
		{"user shrink other sub=1", 5, func() []Progress { return []Progress{add, sub} }},
		{"started 3", 5, func() []Progress { add.IsStarting = false; return []Progress{add, sub} }},
		{"1 integrate ferry://delta/3", 5, func() []Progress { add.Integrated = 1; return []Progress{add, sub} }},
		{"3 integrate mpi://SELF", 5, func() []Progress { add.Integrated = 2; return []Progress{add, sub} }},
		{"4 integrate mpi://SELF", 5, func() []Progress { add.Integrated = 3; return []Progress{add, sub} }},
		{"cancel user", 5, func() []Progress { return []Progress{add} }},
		{"1 finish ferry://delta/3", 5, func() []Progress { return nil }},
	} {
		if _, err := j.command(step.line); err != nil {
			t.Fatalf("%s: %v", step.line, err)
		}
		if want, got := step.want(), j.table.Progress(); !slices.Equal(got, want) || j.table.Present() != step.present {
			t.Errorf("%s: %d present, %+v, want %d, %+v", step.line, j.table.Present(), got, step.present, want)
		}
	}
	if n, unknown := j.table.Size("half"), j.table.Size("unknown"); n != 1 || unknown != 0 {
		t.Errorf("sizes %d and %d", n, unknown)
	}
}
