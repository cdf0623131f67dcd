package sets

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func (ev Event) String() string {
	who := fmt.Sprint("rank ", ev.Requester)
	if ev.IsOfUser {
		who = "user"
	}
	text := fmt.Sprintf("%v %v of %s by %s -> %s", ev.Kind, ev.Op, strings.Join(ev.Operands, "+"), who, strings.Join(ev.Results, " "))
	if ev.Joining+ev.Leaving > 0 {
		text += fmt.Sprintf(" +%d-%d", ev.Joining, ev.Leaving)
	}
	if ev.Text != "" {
		text += ": " + ev.Text
	}
	return text
}

func TestObserve_OperationsAndChanges_AreReportedInOrder(t *testing.T) {
	j := new(job)
	var events []string
	j.open(Options{Size: 3, Most: 5, Observe: func(ev Event) { events = append(events, ev.String()) }})
	j.table.Define("half", []uint32{1})
	for _, step := range []struct {
		line string
		want []string
	}{
		{"0 union mpi://WORLD half name=all", []string{"made union of mpi://WORLD+half by rank 0 -> all"}},
		{"0 split all sizes=1,2", []string{"made split of all by rank 0 -> ferry://set/3 ferry://set/4"}},
		{"0 union all half name=half", nil}, // The name is taken.
		{"0 delete all", []string{"deleted PsetOp(0) of all by rank 0 -> "}},
		{"1 grow half add=1", []string{"begun grow of half by rank 1 -> ferry://delta/5 ferry://set/6 +1-0"}},
		{"started 3", []string{"opened grow of half by rank 1 -> ferry://delta/5 ferry://set/6 +1-0"}},
		{"1 integrate ferry://delta/5", nil},
		{"3 integrate mpi://SELF", []string{"integrated grow of half by rank 1 -> ferry://delta/5 ferry://set/6 +1-0: ferry://set/6"}},
		{"1 finish ferry://delta/5", []string{"finished grow of half by rank 1 -> ferry://delta/5 ferry://set/6 +1-0"}},
		{"user shrink half sub=1", []string{
			"begun shrink of ferry://set/6 by user -> ferry://delta/7 ferry://set/8 +0-1",
			"opened shrink of ferry://set/6 by user -> ferry://delta/7 ferry://set/8 +0-1",
		}},
		{"ended 3", []string{"undone shrink of ferry://set/6 by user -> ferry://delta/7 ferry://set/8 +0-1: ranks [3] have failed"}},
		{"0 add mpi://WORLD add=1", []string{"begun add of mpi://WORLD by rank 0 -> ferry://delta/9 +1-0"}},
		{"started 4 fit=0", []string{"undone add of mpi://WORLD by rank 0 -> ferry://delta/9 +1-0: new processes: 1 requested, 0 fit: a reason; the change is undone"}},
	} {
		events = nil
		if _, err := j.command(step.line); err != nil {
			t.Fatalf("%s: %v", step.line, err)
		}
		if !slices.Equal(events, step.want) {
			t.Errorf("%s:\n%s\nwant\n%s", step.line, strings.Join(events, "\n"), strings.Join(step.want, "\n"))
		}
	}
}

func TestLatest_ManySets_ReturnsWorldAndTheYoungest(t *testing.T) {
	j := newJob(Options{Size: 2, Most: 3})
	for _, line := range []string{"define first 0", "define second 1", "0 union first second name=third", "0 grow mpi://WORLD add=1 name=hidden"} {
		if _, err := j.command(line); err != nil {
			t.Fatal(err)
		}
	}
	all, older := j.table.Latest(4)
	if got := fmt.Sprint(all, older); got != "[{mpi://WORLD [0 1]} {second [1]} {third [0 1]}] 1" {
		t.Errorf("sets %s", got)
	}
}
