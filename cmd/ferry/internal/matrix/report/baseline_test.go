package report

import (
	"strings"
	"testing"
)

func reportOf(rows ...Row) *Report {
	r := &Report{Suite: "quick"}
	for _, row := range rows {
		row.Stack = "s"
		if row.Status != Pass && row.Reason == "" {
			row.Reason = "why"
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func TestCompare_OldAndNewFailures_AreSeparate(t *testing.T) {
	const none = Status("")
	const abandoned = Status("given up") // a Skip
	rowOf := func(s Status) Row {
		if s == abandoned {
			return Row{Case: "c", Status: Skip, IsAbandoned: true}
		}
		return Row{Case: "c", Status: s}
	}
	for _, c := range []struct {
		before, now      Status
		failing, passing bool
	}{
		{Pass, Fail, true, false},
		{Pass, Timeout, true, false},
		{Pass, Unavailable, true, false},
		{Pass, Skip, false, false},
		{Pass, abandoned, true, false},
		{Fail, abandoned, false, false},
		{abandoned, abandoned, false, false},
		{abandoned, Fail, true, false},
		{abandoned, Pass, false, true},
		{Pass, Pass, false, false},
		{none, Fail, true, false},
		{none, Pass, false, false},
		{Skip, Fail, true, false},
		{Fail, Fail, false, false},
		{Fail, Timeout, false, false},
		{Fail, Pass, false, true},
		{Timeout, Pass, false, true},
		{Unavailable, Pass, false, true},
		{Unavailable, Unavailable, false, false},
	} {
		base := reportOf()
		if c.before != none {
			base = reportOf(rowOf(c.before))
		}
		got := Compare(base, reportOf(rowOf(c.now)), 0)
		if len(got.NewlyFailing) == 1 != c.failing || len(got.NewlyPassing) == 1 != c.passing || got.Failed() != c.failing {
			t.Errorf("%q to %q: %+v", c.before, c.now, got)
		}
	}
	var unasked *Comparison
	if unasked.Failed() {
		t.Error("no comparison fails")
	}
}

// Few of its cases may have run.
func TestFailed_StackIsGivenUp_IsTrue(t *testing.T) {
	r := reportOf(Row{Case: "open", Status: Pass}, Row{Case: "btltest/a", Status: Pass}, Row{Case: "conform/2/a", Status: Skip, IsAbandoned: true}, Row{Case: "conform/2/b", Status: Skip})
	if !r.Failed() || r.Verdict() != "Failed: gave up 1 of 1 stack; 1 case not run, because their stacks were given up; 1 case skipped." {
		t.Errorf("failed %t: %s", r.Failed(), r.Verdict())
	}
	cells := r.Table().Lines[0].Cells
	if got := cells["conform"].String(); got != "0/1!" || cells["conform"].Counts().State() != Skip || cells["btltest"].String() != "1" {
		t.Errorf("%s, %s", cells["btltest"], got)
	}
	if mixed := (Cell{{Status: Pass}, {Status: Pass}, {Status: Skip}, {Status: Skip}, {Status: Skip, IsAbandoned: true}}); mixed.String() != "2/3!" || mixed.Counts().State() != Skip {
		t.Errorf("%s: %s", mixed, mixed.Counts().State())
	}
}

func TestCompare_MoreTimeOrLessBandwidth_IsSlower(t *testing.T) {
	figures := func(unit string, values ...float64) *Report {
		row := Row{Case: "bench/x", Status: Pass}
		for i, v := range values {
			row.Points = append(row.Points, Point{Size: 8 << i, Value: v, Unit: unit})
		}
		return reportOf(row)
	}
	for _, c := range []struct {
		what         string
		before, now  *Report
		factor       float64
		sizes, worst int
	}{
		{"latency up", figures("us", 1, 2, 4), figures("us", 1.5, 5, 8.1), 2, 2, 16},
		{"latency down", figures("us", 4), figures("us", 1), 2, 0, 0},
		{"exactly the factor", figures("us", 1), figures("us", 2), 2, 0, 0},
		{"bandwidth down", figures("MB/s", 100, 1000), figures("MB/s", 90, 300), 2, 1, 16},
		{"bandwidth up", figures("MB/s", 100), figures("MB/s", 900), 2, 0, 0},
		{"rate down", figures("msg/s", 1000), figures("msg/s", 400), 2, 1, 8},
		{"not asked for", figures("us", 1), figures("us", 9), 0, 0, 0},
		{"other units", figures("us", 1), figures("ms", 9), 2, 0, 0},
		{"nothing measured", figures("us", 0), figures("us", 9), 2, 0, 0},
	} {
		got := Compare(c.before, c.now, c.factor)
		if c.sizes == 0 {
			if len(got.SlowerBenches) > 0 || got.Failed() {
				t.Errorf("%s: %+v", c.what, got.SlowerBenches)
			}
			continue
		}
		if len(got.SlowerBenches) != 1 || !got.Failed() || got.SlowerBenches[0].SlowerSizes != c.sizes || got.SlowerBenches[0].NewPoint.Size != c.worst {
			t.Errorf("%s: %+v", c.what, got.SlowerBenches)
		}
	}
}

func TestCompare_MachinesDiffer_ListsDifferences(t *testing.T) {
	a, b := reportOf(Row{Case: "c", Status: Pass}), reportOf(Row{Case: "c", Status: Pass})
	a.Machine = Machine{Host: "h1", CoreCount: 2, Libraries: []Library{{Name: "libfabric", Version: "1.17"}}}
	b.Machine = Machine{Host: "h2", CoreCount: 2, Libraries: []Library{{Name: "libfabric", Version: "1.22"}, {Name: "ucx", Version: "1.13"}}}
	b.Stacks = []Stack{{Name: "new"}}
	got := Compare(a, b, 0)
	for _, want := range []string{`host was "h1" and is "h2"`, `libfabric was "1.17" and is "1.22"`} {
		if !strings.Contains(got.MachineDifferences, want) {
			t.Errorf("%q lacks %q", got.MachineDifferences, want)
		}
	}
	if strings.Contains(got.MachineDifferences, "ucx") {
		t.Errorf("a library that was not looked for: %q", got.MachineDifferences)
	}
	if lines := strings.Join(got.Lines(), "\n"); lines != "not in the baseline: new" {
		t.Errorf("stacks: %s", lines)
	}
	if lines := Compare(a, a, 0).Lines(); len(lines) != 1 || lines[0] != "nothing has changed" {
		t.Errorf("with itself: %q", lines)
	}
}
