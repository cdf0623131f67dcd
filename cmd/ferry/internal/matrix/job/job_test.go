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

func TestChooseBenchPartner_SeveralNodes_IsOnAnotherNode(t *testing.T) {
	for hosts, want := range map[string]int{"a": 0, "a a": 1, "a b": 1, "a b a": 1, "a a b b": 3, "a b c a": 2, "a a a": 2} {
		if got := chooseBenchPartner(strings.Fields(hosts)); got != want {
			t.Errorf("%s: rank %d, want %d", hosts, got, want)
		}
	}
}

// jobOf is rank 0 of a job of three ranks over one stack.
func jobOf(cases string) *Job {
	j := &Job{Request: &plan.Request{Suite: plan.Quick(), CasePattern: regexp.MustCompile(cases), LauncherRanks: 3}, hostByRank: []string{"a", "a", "b"}, benchPartner: 2, group: make([]framework.Proc, 3)}
	j.Suite.ConformRanks = []int{3}
	j.plan = j.PlanFor([]report.Stack{{Name: "ob1+shm", PML: "ob1", ViaComponent: "btl shm"}})
	j.record = j.plan.Begin(nil)
	return j
}

const (
	first  = "conform/3/message/every size arrives whole"
	second = "conform/3/message/modes of sends"
)

func TestRecordLogs_RanksDiffer_WorstStatusAndAllReasons(t *testing.T) {
	j := jobOf("^" + first + "|^" + second)
	open := worker.Event{Case: report.OpenCase, Status: report.Pass, Device: "eth0"}
	j.recordLogs(0, []stackLog{
		{Events: []worker.Event{open, {Case: first, Status: report.Timeout, Reason: "hung", Seconds: 2}}, LastCase: first},
		{Events: []worker.Event{open, {Case: first, Status: report.Fail, Reason: "lost", Seconds: 1}}, LastCase: first},
		{Events: []worker.Event{open, {Case: first, Status: report.Timeout, Reason: "hung", Seconds: 3}}, LastCase: first},
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
		if got := r.Rows[i]; got.Case != want.Case || got.Status != want.Status || got.Reason != want.Reason || got.Seconds != want.Seconds || got.IsAbandoned != (i == 2) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Another version of ferry is named, whatever its flags.
func TestDescribeDifferences_FlagDiffers_IsNamed(t *testing.T) {
	first := jobOf("a").sharedSettings()
	if got := describeDifferences(jobOf("a").sharedSettings(), first); got != "" {
		t.Errorf("the same flags: %s", got)
	}
	for want, change := range map[string]func(*Job){
		`--suite is "full", and in rank 0 "quick"`: func(j *Job) { j.Suite.Name = "full" },
		`--cases is "", and in rank 0 "a"`:         func(j *Job) { j.CasePattern = nil },
		`--timeout is "1s", and in rank 0 "0s"`:    func(j *Job) { j.CaseLimit = time.Second },
		`--set is "a=1 b=2", and in rank 0 ""`:     func(j *Job) { j.SetParams = []string{"a=1", "b=2"} },
	} {
		j := jobOf("a")
		change(j)
		if got := describeDifferences(j.sharedSettings(), first); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, other := range [][]sharedSetting{nil, {{"--breadth", "quick"}}} {
		if got := describeDifferences(first, other); !strings.Contains(got, "different version") {
			t.Errorf("%v: %s", other, got)
		}
	}
}

// The reason is the same if the log of one rank is all there is.
func TestComplete_JobEnds_ReasonOfCasesNotRun(t *testing.T) {
	j := jobOf("^" + first + "|^" + second)
	j.recordLogs(0, []stackLog{{Events: []worker.Event{{Case: report.OpenCase, Status: report.Pass}, {Case: first, Status: report.Pass}}, LastCase: second}})
	if rows := j.record.Complete("rank 1 (a) has ended").Rows; len(rows) != 3 || rows[1].Status != report.Pass || rows[2].Status != report.Skip || rows[2].Reason != "not run: rank 1 (a) has ended" {
		t.Errorf("%+v", rows)
	}
}

func TestRecordOwnLog_AnotherRankFailed_CaseFails(t *testing.T) {
	j := jobOf("^" + first + "|^" + second)
	v := &stackRun{stackLog: stackLog{Events: []worker.Event{{Case: report.OpenCase, Status: report.Pass}, {Case: first, Status: report.Pass, OtherRanks: []int{2}}, {Case: second, Status: report.Pass}}}}
	j.recordOwnLog(0, v, reportedError{errors.New("rank 2 (b) has ended")})
	rows := j.record.Complete("rank 2 (b) has ended").Rows
	if len(rows) != 3 || rows[1].Status != report.Fail || !strings.HasPrefix(rows[1].Reason, "rank 2 (b): ") || rows[2].Status != report.Pass {
		t.Errorf("%+v", rows)
	}
}

// No case is to blame, and a stack whose cases all pass would count as usable.
func TestRecordOwnLog_RankIsLostBetweenCases_OpenFails(t *testing.T) {
	for name, passed := range map[string][]worker.Event{
		"before any":   nil,
		"after a case": {{Case: report.OpenCase, Status: report.Pass}, {Case: first, Status: report.Pass}},
	} {
		for _, lost := range []bool{true, false} {
			j := jobOf("^" + first)
			err := context.Canceled
			if lost {
				err = reportedError{errors.New("rank 2 (b) has ended")}
			}
			j.recordOwnLog(0, &stackRun{stackLog: stackLog{Events: passed}}, err)
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
