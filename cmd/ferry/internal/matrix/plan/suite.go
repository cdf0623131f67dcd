// Package plan says what `ferry matrix` will try: which stacks there are, which cases
// each has, and which of them are known to fail.
package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// A Suite says how much a run tries.
type Suite struct {
	Name     string
	Policies []cid.Policy // of pmltest
	Ranks    []int        // of the conformance cases
	// Processes of the conformance cases on goroutine ranks, with GoroutineRanks each.
	Processes int
	// Room is the number of processes that the conformance cases may add to a job; 0: cases that add some are left out.
	Room int
	// HasDeaths adds the fatal conformance cases, each in a job of its own.
	HasDeaths bool
	CaseLimit time.Duration // of a case
	// Open is the limit of OpenCase, if that is longer. Transports have limits of their
	// own for it, and say more than that it did not end.
	OpenLimit time.Duration
	// Start is the time to start the processes of a case. If it is not 0, the limit of a case exceeds that of its transport's
	// library (selftest_timeout), so that the library's own error is the reason of a failure.
	StartTime time.Duration
	// Patience is how long the cases of one stack that don't end may take together,
	// before the rest of the stack is given up; 0: for ever.
	HangBudget time.Duration

	Benches []Column
}

// GoroutineRanks is the number of goroutine ranks of each process in the conformance cases that run on some.
const GoroutineRanks = 2

// bench is the column of a benchmark of `ferry bench`.
func benchColumn(name, unit string, args ...string) Column {
	return Column{Name: "bench/" + name, Ranks: 2, Cells: []string{"bench/" + name}, Bench: args, Unit: unit}
}

// Full is everything.
func Full() Suite {
	return Suite{
		Name: "full", Policies: pmltest.Policies, Ranks: []int{2, 4, 8}, Processes: 2, Room: conform.Room, HasDeaths: true, CaseLimit: time.Minute, OpenLimit: time.Minute, StartTime: 5 * time.Second,
		Benches: []Column{
			benchColumn("latency", "us", "latency", "-m", "1:4MiB"),
			benchColumn("rate", "msg/s", "mbw_mr", "-m", "1:4KiB"),
			benchColumn("bandwidth", "MB/s", "bw", "-m", "1:4MiB"),
		},
	}
}

// Quick shows in a minute or two what works. What it leaves out of Full is here, and
// nowhere else.
func Quick() Suite {
	return Suite{
		Name: "quick",
		// The policy of communicators that are made by Dup, which asks most of a PML.
		Policies:  []cid.Policy{cid.PolicyLazy},
		Ranks:     []int{2},
		Processes: 2,
		HasDeaths: true,
		// The longest take a second on a quiet machine.
		CaseLimit:  8 * time.Second,
		OpenLimit:  20 * time.Second,
		StartTime:  5 * time.Second,
		HangBudget: 24 * time.Second,
		// Enough iterations for two digits.
		Benches: []Column{
			benchColumn("latency", "us", "latency", "-m", "1:1MiB", "-i", "200", "-x", "20"),
			benchColumn("rate", "msg/s", "mbw_mr", "-m", "1:4KiB", "-i", "20", "-x", "2"),
			benchColumn("bandwidth", "MB/s", "bw", "-m", "1:1MiB", "-i", "8", "-x", "2"),
		},
	}
}

// A Column is cases of one stack that one worker runs, one after the other.
type Column struct {
	Name  string // what the names of its cells begin with: "btltest", "conform/2"; or the only cell's
	Ranks int    // processes of the worker; 0: one, which is not a rank
	// Goroutines is the number of goroutine ranks of each process that run the cases. With 0, processes do.
	Goroutines int      `json:",omitempty"`
	Room       int      `json:",omitempty"` // Number of processes that the cases may add.
	Deaths     int      `json:",omitempty"` // Number of ranks that the cases may kill.
	Cells      []string // the names of the cases
	Bench      []string // arguments of `ferry bench`, if that is what it is
	Unit       string   // of the benchmark's figures
	Set        []string // parameters (NAME=VALUE) for this column, besides its stack's
}

// Of is a column of cases by their names below the column's.
func NewColumn(name string, ranks int, cases ...string) Column {
	c := Column{Name: name, Ranks: ranks}
	for _, x := range cases {
		c.Cells = append(c.Cells, name+"/"+x)
	}
	return c
}

// Case is the name of a cell below the column's.
func (c Column) CaseName(cell string) string { return strings.TrimPrefix(cell, c.Name+"/") }

// Kit says that the cases are those of a kit, which makes processes of its own.
func (c Column) IsKit() bool { return c.Ranks == 0 }

// openColumn is the column of report.OpenCase. ranks are those of a launcher, if any.
// A transport that tests itself when it opens (values have its parameter selftest) does so at
// length, here and in no other column.
func openColumn(s report.Stack, ranks int, values *framework.Values) Column {
	c := Column{Name: report.OpenCase, Ranks: cmp.Or(ranks, 2), Cells: []string{report.OpenCase}}
	if kind, name := s.Transport(); values != nil {
		test := kind + "." + name + ".selftest"
		if _, ok := values.Get(test); ok {
			c.Set = []string{test + "=long"}
		}
	}
	if s.Alone() {
		c.Ranks = 1
	}
	return c
}

// columns returns what the suite has for a stack that can be opened, the benchmarks
// last. Cases that don't apply to such a stack are not among them.
func (u Suite) columnsOf(s report.Stack) []Column {
	var all []Column
	switch kind, _ := s.Transport(); kind {
	case "btl":
		all = append(all, NewColumn("btltest", 0, btltest.Cases(btltest.Subject{}).Names()...))
	case "mtl":
		all = append(all, NewColumn("mtltest", 0, mtltest.Cases(mtltest.Subject{}).Names()...))
	}
	ranks, processes, room := u.Ranks, u.Processes, u.Room
	if s.Alone() {
		ranks, processes, room = []int{1}, 1, 0
	} else if s.Via != "" {
		for _, p := range u.Policies {
			all = append(all, NewColumn("pmltest/"+p.String(), 0, pmltest.Cases(pmltest.Stack{}, p).Names()...))
		}
	}
	for _, n := range ranks {
		all = append(all, conformColumn(n, 0, room))
		if u.HasDeaths && !s.Alone() {
			all = append(all, deathColumns(n)...)
		}
	}
	all = append(all, conformColumn(processes, GoroutineRanks, 0))
	if !s.Alone() {
		all = append(all, u.Benches...)
	}
	return all
}

// conformance is the column of the conformance cases with that many processes, or with goroutine ranks in each, and with
// room for more processes.
func conformColumn(processes, goroutines, room int) Column {
	name := fmt.Sprint("conform/", processes)
	if goroutines > 0 {
		name += fmt.Sprint("x", goroutines)
	}
	var cases []string
	for _, x := range conform.Cases() {
		if x.Ranks <= processes*max(1, goroutines) && !(x.Processes && goroutines > 0) && !(x.Adds && room == 0) && !x.Dies {
			cases = append(cases, x.Name)
		}
	}
	c := NewColumn(name, processes, cases...)
	c.Goroutines, c.Room = goroutines, room
	return c
}

// deaths returns a column for each fatal conformance case.
func deathColumns(processes int) (list []Column) {
	for _, x := range conform.Cases() {
		if x.Dies && x.Ranks <= processes {
			c := NewColumn(fmt.Sprint("conform/", processes), processes, x.Name)
			c.Deaths = 1
			list = append(list, c)
		}
	}
	return list
}
