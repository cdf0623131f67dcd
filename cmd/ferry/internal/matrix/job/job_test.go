package job

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/worker"
	"github.com/ferrympi/ferry/framework"
)

// TestBenchmarksOfAJobCrossNodes where there are some.
func TestBenchmarksOfAJobCrossNodes(t *testing.T) {
	for hosts, want := range map[string]int{"a": 0, "a a": 1, "a b": 1, "a b a": 1, "a a b b": 3, "a b c a": 2, "a a a": 2} {
		if got := partner(strings.Fields(hosts)); got != want {
			t.Errorf("%s: rank %d, want %d", hosts, got, want)
		}
	}
}

// jobOf is rank 0 of a job of three, which has met over one stack.
func jobOf(cases string) *Job {
	j := &Job{Request: &plan.Request{Suite: plan.Quick(), Cases: regexp.MustCompile(cases), Ranks: 3}, hosts: []string{"a", "a", "b"}, player: 2, group: make([]framework.Proc, 3)}
	j.Suite.Ranks = []int{3}
	j.plan = j.Over([]report.Stack{{Name: "ob1+shm", PML: "ob1", Via: "btl shm"}})
	j.record = j.plan.Begin(nil)
	return j
}

const (
	first  = "conform/3/message/every size arrives whole"
	second = "conform/3/message/modes of sends"
)

// TestAccountsOfRanksMakeOneRow: the worst counts, each reason stands once, with who
// gives it, and what nobody ran is not forgotten.
func TestAccountsOfRanksMakeOneRow(t *testing.T) {
	j := jobOf("^" + first + "|^" + second)
	open := worker.Event{Case: report.OpenCase, Status: report.Pass, Device: "eth0"}
	j.merge(0, []account{
		{Said: []worker.Event{open, {Case: first, Status: report.Timeout, Reason: "hung", Seconds: 2}}, Ended: first},
		{Said: []worker.Event{open, {Case: first, Status: report.Fail, Reason: "lost", Seconds: 1}}, Ended: first},
		{Said: []worker.Event{open, {Case: first, Status: report.Timeout, Reason: "hung", Seconds: 3}}, Ended: first},
	})
	r := j.record.Complete("")
	if len(r.Rows) != 3 || r.Stacks[0].Device != "eth0" {
		t.Fatalf("%+v", r)
	}
	for i, want := range []report.Row{
		{Case: report.OpenCase, Status: report.Pass},
		{Case: first, Status: report.Fail, Reason: "rank 0 (a), rank 2 (b): hung; rank 1 (a): lost", Seconds: 3},
		{Case: second, Status: report.Skip, Reason: "not run: the stack was given up after " + first},
	} {
		if got := r.Rows[i]; got.Case != want.Case || got.Status != want.Status || got.Reason != want.Reason || got.Seconds != want.Seconds || got.GivenUp != (i == 2) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestEveryFlagThatDiffersIsNamed, and another version of ferry, whatever it calls
// its flags.
func TestEveryFlagThatDiffersIsNamed(t *testing.T) {
	first := jobOf("a").terms()
	if got := differ(jobOf("a").terms(), first); got != "" {
		t.Errorf("the same flags: %s", got)
	}
	for want, change := range map[string]func(*Job){
		`--suite is "full", and in rank 0 "quick"`: func(j *Job) { j.Suite.Name = "full" },
		`--cases is "", and in rank 0 "a"`:         func(j *Job) { j.Cases = nil },
		`--timeout is "1s", and in rank 0 "0s"`:    func(j *Job) { j.Limit = time.Second },
		`--set is "a=1 b=2", and in rank 0 ""`:     func(j *Job) { j.Set = []string{"a=1", "b=2"} },
	} {
		j := jobOf("a")
		change(j)
		if got := differ(j.terms(), first); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, other := range [][]term{nil, {{"--breadth", "quick"}}} {
		if got := differ(first, other); !strings.Contains(got, "different version") {
			t.Errorf("%v: %s", other, got)
		}
	}
}

// TestEndOfAJobIsTheReasonOfWhatWasNotRun, also where one rank's account is all
// there is.
func TestEndOfAJobIsTheReasonOfWhatWasNotRun(t *testing.T) {
	j := jobOf("^" + first + "|^" + second)
	j.merge(0, []account{{Said: []worker.Event{{Case: report.OpenCase, Status: report.Pass}, {Case: first, Status: report.Pass}}, Ended: second}})
	if rows := j.record.Complete("rank 1 (a) has ended").Rows; len(rows) != 3 || rows[1].Status != report.Pass || rows[2].Status != report.Skip || rows[2].Reason != "not run: rank 1 (a) has ended" {
		t.Errorf("%+v", rows)
	}
}

// TestCaseThatAnotherRankFailedIsNoPass, though nobody is left to say why.
func TestCaseThatAnotherRankFailedIsNoPass(t *testing.T) {
	j := jobOf("^" + first + "|^" + second)
	v := &visit{account: account{Said: []worker.Event{{Case: report.OpenCase, Status: report.Pass}, {Case: first, Status: report.Pass, Others: []int{2}}, {Case: second, Status: report.Pass}}}}
	j.alone(0, v, told{errors.New("rank 2 (b) has ended")})
	rows := j.record.Complete("rank 2 (b) has ended").Rows
	if len(rows) != 3 || rows[1].Status != report.Fail || !strings.HasPrefix(rows[1].Reason, "rank 2 (b): ") || rows[2].Status != report.Pass {
		t.Errorf("%+v", rows)
	}
}

// TestRankThatIsLostBetweenCasesIsTheStacksFailure: no case did it, and a stack of
// which all cases pass is fit for use.
func TestRankThatIsLostBetweenCasesIsTheStacksFailure(t *testing.T) {
	for name, passed := range map[string][]worker.Event{
		"before any":   nil,
		"after a case": {{Case: report.OpenCase, Status: report.Pass}, {Case: first, Status: report.Pass}},
	} {
		for _, lost := range []bool{true, false} {
			j := jobOf("^" + first)
			err := context.Canceled
			if lost {
				err = told{errors.New("rank 2 (b) has ended")}
			}
			j.alone(0, &visit{account: account{Said: passed}}, err)
			want := report.Row{Status: report.Fail, Reason: "rank 0 (a): rank 2 (b) has ended"}
			switch {
			case !lost && passed == nil:
				want = report.Row{Status: report.Skip, Reason: "not run: context canceled"}
			case !lost:
				want = report.Row{Status: report.Pass}
			}
			if got := j.record.Complete(err.Error()).Rows[0]; got.Case != report.OpenCase || got.Status != want.Status || got.Reason != want.Reason {
				t.Errorf("%s, lost %t: %+v, want %+v", name, lost, got, want)
			}
		}
	}
}
