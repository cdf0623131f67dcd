package worker

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// recordedLines is a CaseRecorder that records the calls.
type recordedLines []string

func (l *recordedLines) Begin(cell string) { l.add("begin " + cell) }
func (l *recordedLines) End(e Event) {
	l.add(fmt.Sprint("end ", e.Status, " ", e.Reason, e.OtherRanks))
}

func (l *recordedLines) Progress(points ...report.Point) {
	l.add(fmt.Sprint("progress ", points))
}

// add drops repetitions of Begin.
func (l *recordedLines) add(line string) {
	if n := len(*l); n == 0 || (*l)[n-1] != line {
		*l = append(*l, line)
	}
}

func TestTally_RankIsAhead_CasesFollowOneAnother(t *testing.T) {
	var got recordedLines
	tally := &tally{CaseRecorder: &got, rankCount: 2, resultsByCase: map[string][]conform.Result{}}
	tally.beginCase("a")
	tally.beginCase("a")
	tally.addResult("a", conform.Result{Rank: 2})
	tally.beginCase("b") // By rank 2, while rank 3 is in a.
	tally.addResult("a", conform.Result{Rank: 3})
	tally.addResult("b", conform.Result{Rank: 2, FailedRanks: []int{0, 3}})
	tally.beginCase("c")
	tally.addResult("b", conform.Result{Rank: 3, FailedRanks: []int{0, 3}, Err: errors.New("wrong")})
	tally.addResult("c", conform.Result{Rank: 3, FailedRanks: []int{3}, Err: errors.New("lost")})
	tally.endAll()
	want := recordedLines{
		"begin a", "end pass []", "begin b", "end fail goroutine rank 3: wrong[0 1]", "begin c", "end fail goroutine rank 3: lost[1]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCombine_CaseIsSkipped_ReasonIsKept(t *testing.T) {
	e := combineResults([]conform.Result{{Status: conform.Skip, SkipReason: "no room"}}, 1)
	if e.Status != report.Skip || e.Reason != "no room" {
		t.Errorf("%+v", e)
	}
}

func TestCombine_TimeoutInOneRank_IsTheOutcome(t *testing.T) {
	e := combineResults([]conform.Result{{Rank: 1, Err: fmt.Errorf("rank: %w", conform.ErrHung)}, {Rank: 0, Err: errors.New("wrong")}}, 2)
	if e.Status != report.Timeout || e.Reason != "goroutine rank 0: wrong; goroutine rank 1: rank: hung" {
		t.Errorf("%+v", e)
	}
	if e := combineResults([]conform.Result{{Rank: 1, Err: errors.New("wrong")}}, 1); e.Reason != "wrong" {
		t.Errorf("a process without goroutine ranks: %+v", e)
	}
}
