package worker

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// Ranks begin a case before the others have ended the previous one.
func TestAttempt_WorkerIsLost_ItsCaseFails(t *testing.T) {
	const column = "conform/2"
	begin := func(rank int, name string) Event { return Event{Rank: rank, Case: column + "/" + name} }
	end := func(rank int, name string) Event {
		return Event{Rank: rank, Case: column + "/" + name, Status: report.Pass}
	}
	killed := func(rank int) workerExit {
		return workerExit{rankCount: 2, jobResult: launch.Result{Status: 137, Failures: []launch.Failure{{Rank: rank, HowEnded: "was killed"}}}}
	}
	hung := workerExit{rankCount: 2, isHung: true}
	early := []Event{begin(0, "a"), begin(1, "a"), end(0, "a"), begin(0, "b")} // Rank 0 is ahead.
	both := append(early[:4:4], end(1, "a"), begin(1, "b"))
	for _, c := range []struct {
		what   string
		Events []Event
		end    workerExit
		// Case and status of each.
		rows string
		left string
	}{
		{"both are in b", both, killed(0), "a pass, b fail", "c"},
		{"both are in b, which hangs", both, hung, "a pass, b timeout", "c"},
		{"the other has ended a, and not begun b", both[:5], killed(1), "a pass, b fail", "c"},
		{"rank 0 dies in b, and rank 1 has not ended a", early, killed(0), "b fail", "a c"},
		{"rank 1 dies in a, and rank 0 is in b", early, killed(1), "a fail", "b c"},
		{"rank 1 hangs in a, and rank 0 is in b", early, hung, "a timeout", "b c"},
		{"rank 1 dies after a", append(early[:3:3], end(1, "a")), killed(1), "a fail", "b c"},
		{"no rank has begun", nil, killed(0), "a fail", "b c"},
		{"rank 1 is in c, and rank 0 has not ended b", append(both[:6:6], end(1, "b"), begin(1, "c")), killed(1), "a pass, c fail", "b"},
	} {
		var rows []string
		w := &cancelObserver{}
		l := &stackRun{Pool: &Pool{LoadPerProcessor: func() float64 { return 0 }}, record: (&plan.Plan{Request: &plan.Request{}}).Begin(w), stack: &report.Stack{Name: "s", ViaComponent: "btl x"}}
		a := l.newAttempt(plan.NewColumn(column, 2, "a", "b", "c"))
		for _, e := range c.Events {
			if err := a.addEvent(e); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
		}
		a.recordEnd(c.end)
		for _, row := range w.rows {
			rows = append(rows, strings.TrimPrefix(row.Case, "conform/2/")+" "+string(row.Status))
		}
		if got := strings.Join(rows, ", "); got != c.rows || strings.ReplaceAll(strings.Join(a.remainingCells(), " "), column+"/", "") != c.left {
			t.Errorf("%s: %s, and %q is left; want %s, and %s", c.what, got, a.remainingCells(), c.rows, c.left)
		}
	}
}

func TestAddEvent_CaseHasEnded_IsAnError(t *testing.T) {
	l := &stackRun{record: (&plan.Plan{Request: &plan.Request{}}).Begin(nil), stack: &report.Stack{Name: "s"}}
	a := l.newAttempt(plan.NewColumn("kit", 0, "a", "b"))
	for _, e := range []Event{{Case: "kit/a"}, {Case: "kit/a", Status: report.Pass}, {Case: "kit/b"}} {
		if err := a.addEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []Event{{Case: "kit/a"}, {Case: "kit/a", Status: report.Fail}, {Case: "kit/b", Rank: 1}, {Case: "kit/c"}} {
		if err := a.addEvent(e); err == nil {
			t.Errorf("%+v was accepted", e)
		}
	}
}
