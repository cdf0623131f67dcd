package run

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// testResult is the result of a job of three ranks. The last rank has no report.
func testResult(reports ...launch.Report) launch.Result {
	at := func(ms int) time.Duration { return 1000*time.Second + time.Duration(ms)*time.Millisecond }
	return launch.Result{
		Reports: reports,
		Trace: launch.Trace{
			CalledAt: at(2), ServingAt: at(3), RanksEndedAt: at(95), TidiedUpAt: at(100),
			Ranks: []launch.RankTrace{
				{Rank: 0, ForkRequestedAt: at(3), RunningAt: at(5), EndSeenAt: at(90)},
				{Rank: 1, ForkRequestedAt: at(6), RunningAt: at(10), EndSeenAt: at(95)},
				{Rank: 2, ForkRequestedAt: at(10), RunningAt: at(11), EndSeenAt: at(40)},
			},
		},
	}
}

// openReport is the report of a rank that opened its session at that time in ms.
func openReport(rank, open, done int) launch.Report {
	body := fmt.Sprintf(`{"marks":[{"step":"session is open","at_ns":%d,"used_ns":3000000},{"step":"OpenSession is called","at_ns":%d,"used_ns":1000000}],
		"parts":[{"step":"session is open","name":"open btl shm","took_ns":%d}]}`,
		1000_000_000_000+done*1e6, 1000_000_000_000+open*1e6, (rank+1)*1000)
	return launch.Report{Rank: rank, Name: timingReport, Body: []byte(body)}
}

func TestTiming_ReportsOfRanks_AreSummarized(t *testing.T) {
	// Later sessions are not part of the start.
	x, err := mergeTiming(1000*time.Second, testResult(openReport(0, 8, 12), openReport(1, 20, 50), openReport(0, 60, 70), launch.Report{Rank: 1, Name: "explain", Body: []byte("x")}))
	if err != nil {
		t.Fatal(err)
	}
	if x.TotalTime != 100*time.Millisecond || !slices.Equal(x.RanksWithoutReport, []int{2}) {
		t.Errorf("whole %v, silent %v", x.TotalTime, x.RanksWithoutReport)
	}
	var steps []string
	var shares float64
	byStep := map[string]stepSummary{}
	for _, ph := range x.Phases {
		steps = append(steps, ph.Step)
		shares += ph.DelayShare
		byStep[ph.Step] = ph
	}
	want := []string{stepCommand, stepServing, stepFork, "OpenSession is called", stepStarted, "session is open", stepEnded, stepDone}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if shares < 0.999 || shares > 1.001 {
		t.Errorf("the shares add up to %g", shares)
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		step                      string
		first, median, last, took time.Duration
		ranks                     int
		share                     float64
	}{
		{stepFork, 3 * ms, 6 * ms, 10 * ms, 0, 3, 0.07},
		{stepStarted, 5 * ms, 10 * ms, 11 * ms, 2 * ms, 3, 0},
		{"OpenSession is called", 8 * ms, 8 * ms, 20 * ms, 3 * ms, 2, 0.10},
		{"session is open", 12 * ms, 12 * ms, 50 * ms, 4 * ms, 2, 0.30},
		{stepDone, 100 * ms, 100 * ms, 100 * ms, 5 * ms, 0, 0.05},
	} {
		got := byStep[c.step]
		if got.FirstAt != c.first || got.MedianAt != c.median || got.LastAt != c.last || got.Duration != c.took || got.RankCount != c.ranks ||
			got.DelayShare < c.share-1e-9 || got.DelayShare > c.share+1e-9 {
			t.Errorf("%+v, want %+v", got, c)
		}
	}
	if open := byStep["session is open"]; open.ProcessorTime != 2*ms || len(open.Parts) != 1 || open.Parts[0].Duration != time.Microsecond {
		t.Errorf("%+v", open)
	}
	var table strings.Builder
	if err := x.print(&table); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"session is open (2 ranks)                           12.000    12.000    50.000     4.000      2.000    30%",
		"    open btl shm                                                                   0.001",
		"ranks that closed no session, and reported nothing: 2",
	} {
		if !strings.Contains(table.String(), line+"\n") {
			t.Errorf("the table lacks %q:\n%s", line, table.String())
		}
	}
}

func TestTiming_InvalidReport_IsAnError(t *testing.T) {
	if x, err := mergeTiming(0, testResult(launch.Report{Rank: 1, Name: timingReport, Body: []byte(`{"marks":1}`)})); err == nil {
		t.Errorf("%+v", x)
	}
}
