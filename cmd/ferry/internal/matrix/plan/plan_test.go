package plan

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
)

// Stacks share the suite's benchmarks.
func TestPlanFor_CasesOfOneStack_KeepTheNext(t *testing.T) {
	stacks := []report.Stack{{Name: "a", ViaComponent: "btl a"}, {Name: "b", ViaComponent: "btl b"}, {Name: "gone", AbsentReason: "no device"}}
	r := &Request{Suite: Quick(), CasePattern: regexp.MustCompile("^(conform/2/group/empty)?$")}
	p := r.PlanFor(stacks)
	for i, want := range [][]string{{"open", "conform/2/group/empty"}, {"open", "conform/2/group/empty"}, {"open"}} {
		if got := p.Cells(i); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", stacks[i].Name, got, want)
		}
	}
	r.CasePattern = nil
	if cells := r.PlanFor(stacks).Cells(1); !slices.Contains(cells, "bench/latency") || slices.Contains(cells, "") {
		t.Errorf("all: %q", cells)
	}
}

func TestColumns_EachStack_HasCasesOnGoroutineRanks(t *testing.T) {
	r := &Request{Suite: Full()}
	for _, c := range []struct {
		stack report.Stack
		ranks int // Of a launcher.
		want  string
	}{
		{report.Stack{Name: "a", ViaComponent: "btl a"}, 0, "conform/2x2"},
		{report.Stack{Name: "ob1+self", ViaComponent: "btl self"}, 0, "conform/1x2"},
		{report.Stack{Name: "cm+ofi net", ViaComponent: "mtl ofi"}, 3, "conform/3x2"},
	} {
		if r.Suite.GoroutineProcesses = 2; c.ranks > 0 {
			r.Suite.GoroutineProcesses = c.ranks
		}
		cells := r.PlanFor([]report.Stack{c.stack}).Cells(0)
		if !slices.Contains(cells, c.want+"/message/all to all at once") {
			t.Errorf("%s: no case of %s in %q", c.stack.Name, c.want, cells)
		}
		if slices.ContainsFunc(cells, func(cell string) bool { return strings.HasPrefix(cell, c.want+"/session/") }) {
			t.Errorf("%s: %s has cases about sessions", c.stack.Name, c.want)
		}
	}
}

func TestColumns_SuiteHasRoom_CasesAddProcesses(t *testing.T) {
	const sets, adds = "pset/split", "pset/grow and shrink"
	for _, c := range []struct {
		suite  Suite
		via    string
		column string
		want   []string
	}{
		{Full(), "btl a", "conform/4", []string{sets, adds}},
		{Quick(), "btl a", "conform/2", []string{sets}},
		{Full(), "btl self", "conform/1", []string{sets}},
		{Full(), "btl a", "conform/2x2", nil},
	} {
		s := report.Stack{Name: "ob1", ViaComponent: c.via}
		var got []string
		for _, column := range (&Request{Suite: c.suite}).PlanFor([]report.Stack{s}).ColumnsByStack[0] {
			for _, name := range []string{sets, adds} {
				if column.Name == c.column && slices.Contains(column.CellNames, c.column+"/"+name) {
					got = append(got, name)
				}
			}
			if hasRoom := column.AddableProcesses > 0; column.Name == c.column && column.KillableRanks == 0 && hasRoom != slices.Contains(c.want, adds) {
				t.Errorf("suite %s over %s: %s has room for %d processes", c.suite.Name, c.via, c.column, column.AddableProcesses)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("suite %s over %s: %s has the cases %q, want %q", c.suite.Name, c.via, c.column, got, c.want)
		}
	}
}

func TestColumns_CaseKillsARank_HasAColumnOfItsOwn(t *testing.T) {
	dies := map[string]bool{}
	for _, x := range conform.Cases() {
		dies[x.Name] = x.KillsRank
	}
	for _, c := range []struct {
		suite Suite
		via   string
		// Columns for each such case.
		want int
	}{{Full(), "btl a", 3}, {Quick(), "btl a", 1}, {Full(), "btl self", 0}, {Suite{ConformRanks: []int{4}, GoroutineProcesses: 4}, "btl a", 0}} {
		found := map[string]int{}
		for _, column := range (&Request{Suite: c.suite}).PlanFor([]report.Stack{{Name: "ob1", ViaComponent: c.via}}).ColumnsByStack[0] {
			for _, cell := range column.CellNames {
				name := column.CaseName(cell)
				if !dies[name] {
					continue
				}
				if found[name]++; len(column.CellNames) != 1 || column.KillableRanks != 1 || column.GoroutineRanks != 0 {
					t.Errorf("suite %s over %s: %s in a column of %d cases with %d deaths", c.suite.Name, c.via, cell, len(column.CellNames), column.KillableRanks)
				}
			}
		}
		for name, isDeath := range dies {
			if isDeath && found[name] != c.want {
				t.Errorf("suite %s over %s: %s has %d columns, want %d", c.suite.Name, c.via, name, found[name], c.want)
			}
		}
	}
}

// Stacks selected by a pattern or left by an exclusion are not required.
func TestMarkRequired_NamedStack_MustExist(t *testing.T) {
	stacks := func() []report.Stack {
		return []report.Stack{{Name: "a"}, {Name: "b net", AbsentReason: "no device"}, {Name: "b old", AbsentReason: "a defect", IsRefused: true}}
	}
	for _, c := range []struct {
		components, require string
		// Statuses of report.OpenCase.
		open []report.Status
	}{
		{"", "", []report.Status{report.Unavailable, report.Refused}},
		{"a,b net", "", []report.Status{report.Fail, report.Refused}},
		{"b *", "", []report.Status{report.Unavailable, report.Refused}},
		{"^a", "", []report.Status{report.Unavailable, report.Refused}},
		{"", "b old,a", []report.Status{report.Unavailable, report.Fail}},
		{"b*", "b *", []report.Status{report.Fail, report.Fail}},
	} {
		r := &Request{Suite: Quick()}
		for list, into := range map[string]**Components{c.components: &r.SelectedStacks, c.require: &r.RequiredStacks} {
			if list != "" {
				*into, _ = ParseComponents(list)
			}
		}
		all := stacks()
		if err := r.markRequired(all); err != nil {
			t.Fatal(err)
		}
		record := r.PlanFor(all).Begin(nil)
		for i, want := range c.open {
			s := all[i+1]
			row := record.AddRow(s, r.Row(s, record.ColumnsByStack[i+1][0], report.OpenCase, s.Absent(), s.AbsentReason))
			if row.Status != want || !strings.HasSuffix(row.Reason, s.AbsentReason) {
				t.Errorf("components %q, require %q: %s is %s: %s", c.components, c.require, s.Name, row.Status, row.Reason)
			}
		}
		if failed := record.Complete("").Failed(); failed != slices.Contains(c.open, report.Fail) {
			t.Errorf("components %q, require %q: failed is %t", c.components, c.require, failed)
		}
	}
	r := &Request{Suite: Quick()}
	r.RequiredStacks, _ = ParseComponents("b nat")
	if err := r.markRequired(stacks()); err == nil || !strings.Contains(err.Error(), `--require: `) || !strings.Contains(err.Error(), `"b net"`) {
		t.Errorf("a name of nothing: %v", err)
	}
}

func TestLimitOf_StackWithLibrary_ExceedsThatOfItsLoad(t *testing.T) {
	reg := components.Standard()
	defaults, err := reg.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	slow, err := defaults.With("test", map[string]string{"mtl.ofi.selftest_timeout": "30s"})
	if err != nil {
		t.Fatal(err)
	}
	ofi, shm := report.Stack{Name: "cm+ofi tcp", ViaComponent: "mtl ofi"}, report.Stack{Name: "ob1+shm", ViaComponent: "btl shm"}
	cases, first := NewColumn("conform/2", 2, "a"), openColumn(ofi, 0, nil)
	r := &Request{Values: defaults, Suite: Quick()}
	r.CaseLimit = r.Suite.CaseLimit
	for _, c := range []struct {
		values *framework.Values
		stack  report.Stack
		column Column
		want   time.Duration
	}{
		{defaults, ofi, cases, 20 * time.Second}, {slow, ofi, cases, 50 * time.Second}, {slow, ofi, first, 50 * time.Second},
		{slow, shm, cases, r.CaseLimit}, {defaults, shm, first, r.Suite.OpenLimit},
	} {
		r.Values = c.values
		if got := r.LimitOf(c.stack, c.column); got != c.want {
			t.Errorf("%s, %s: %v, want %v", c.stack.Name, c.column.Name, got, c.want)
		}
	}
	r.Suite.StartTime = 0 // --timeout
	if got := r.LimitOf(ofi, cases); got != r.CaseLimit {
		t.Errorf("with --timeout: %v, want %v", got, r.CaseLimit)
	}
}
