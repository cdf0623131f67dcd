package jobs

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/control"
)

func TestTable_JobsInEachState_AreAligned(t *testing.T) {
	grow := control.Change{Type: "add", Pset: "mpi://WORLD", Add: 2, State: "starting", Members: 6}
	replace := control.Change{Type: "replace", Pset: "a\n", Add: 1, Sub: 1, State: "integrating", Members: 3, Integrated: 2}
	jobs := []Job{
		{PID: 7, State: running, Status: control.Status{Program: "/bin/a -x 1 : /bin/b", Ranks: 1, Limit: 1}},
		{PID: 4711, State: running, Status: control.Status{Program: "\x1b[2J", Ranks: 6, Limit: 131072, Changes: []control.Change{grow, replace}}},
		{PID: 4712, State: ending, Status: control.Status{Program: "/bin/é", Ranks: 2, Limit: 2, Changes: []control.Change{{Pset: "x", Sub: 2, State: "integrating", Members: 2}}}},
		{PID: 4713, State: unavailable, Reason: "does not answer"},
		{State: unavailable, Reason: "does not answer"},
	}
	var b strings.Builder
	if err := printTable(&b, jobs); err != nil {
		t.Fatal(err)
	}
	want := `PID   RANKS   LIMIT  CHANGE                                                                            PROGRAM
7         1       1  -                                                                                 /bin/a -x 1 : /bin/b
4711      6  131072  add 2 to mpi://WORLD (starting), remove 1 of "a\n" and add 1 (2 of 3 integrated)  "\x1b[2J"
4712      2       2  remove 2 of x (0 of 2 integrated), ending                                         /bin/é
4713      -       -  does not answer                                                                   -
-         -       -  does not answer                                                                   -
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	if err := printTable(&b, nil); err != nil || b.Len() > 0 {
		t.Errorf("without jobs: %q, %v", b.String(), err)
	}
}

func TestResult_SetIsDeleted_IsLeftOut(t *testing.T) {
	for want, r := range map[string]control.Resized{
		"4 added, 0 removed; ferry://set/2 has 8 ranks": {Pset: []byte("ferry://set/2"), Ranks: 8, Added: 4},
		"0 added, 1 removed; \"\\xff\" has 1 rank":      {Pset: []byte("\xff"), Ranks: 1, Removed: 1},
		"0 added, 2 removed":                            {Pset: []byte("x"), Removed: 2},
	} {
		if got := result(r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
