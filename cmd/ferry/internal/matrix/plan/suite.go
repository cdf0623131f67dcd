// Package plan selects the stacks and the cases of `ferry matrix`, and has the exclusions of cases that are known to fail.
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

// A Suite is the extent of a run.
type Suite struct {
	Name string
	// Policies of pmltest.
	Policies []cid.Policy
	// Numbers of ranks of the conformance cases.
	ConformRanks []int
	// GoroutineProcesses is the number of processes of the conformance cases on GoroutineRanks each.
	GoroutineProcesses int
	// AddableProcesses is the number of processes that conformance cases may add to a job. With 0, such cases are left out.
	AddableProcesses int
	// HasDeaths adds the fatal conformance cases, each in a separate job.
	HasDeaths bool
	CaseLimit time.Duration // Limit of a case.
	// OpenLimit is the limit of OpenCase, if it is longer. Transports have limits of their own, with more precise
	// errors.
	OpenLimit time.Duration
	// StartTime is the time to start the processes of a case. If it is not 0, the limit of a case exceeds the
	// selftest_timeout of its transport's library, so that the library's own error is the reason of a failure.
	StartTime time.Duration
	// HangBudget is the total time of hung cases after which the rest of a stack is skipped. 0 means no limit.
	HangBudget time.Duration

	BenchColumns []Column
}

// GoroutineRanks is the number of goroutine ranks of each process in the conformance cases that use some.
const GoroutineRanks = 2

// benchColumn returns the column of a benchmark of `ferry bench`.
func benchColumn(name, unit string, args ...string) Column {
	return Column{Name: "bench/" + name, ProcessCount: 2, CellNames: []string{"bench/" + name}, BenchArgs: args, BenchUnit: unit}
}

// Full returns the suite with all cases.
func Full() Suite {
	return Suite{
		Name: "full", Policies: pmltest.Policies, ConformRanks: []int{2, 4, 8}, GoroutineProcesses: 2, AddableProcesses: conform.Room, HasDeaths: true, CaseLimit: time.Minute, OpenLimit: time.Minute, StartTime: 5 * time.Second,
		BenchColumns: []Column{
			benchColumn("latency", "us", "latency", "-m", "1:4MiB"),
			benchColumn("rate", "msg/s", "mbw_mr", "-m", "1:4KiB"),
			benchColumn("bandwidth", "MB/s", "bw", "-m", "1:4MiB"),
		},
	}
}

// Quick returns the suite of a minute or two. All its differences from Full are here.
func Quick() Suite {
	return Suite{
		Name: "quick",
		// The policy of Dup, the most demanding one for a PML.
		Policies:           []cid.Policy{cid.PolicyLazy},
		ConformRanks:       []int{2},
		GoroutineProcesses: 2,
		HasDeaths:          true,
		// The longest cases need a second on an idle machine.
		CaseLimit:  8 * time.Second,
		OpenLimit:  20 * time.Second,
		StartTime:  5 * time.Second,
		HangBudget: 24 * time.Second,
		// Enough iterations for two digits.
		BenchColumns: []Column{
			benchColumn("latency", "us", "latency", "-m", "1:1MiB", "-i", "200", "-x", "20"),
			benchColumn("rate", "msg/s", "mbw_mr", "-m", "1:4KiB", "-i", "20", "-x", "2"),
			benchColumn("bandwidth", "MB/s", "bw", "-m", "1:1MiB", "-i", "8", "-x", "2"),
		},
	}
}

// A Column is a list of cases of one stack that one worker runs.
type Column struct {
	// Prefix of its cells ("btltest", "conform/2"), or the only cell.
	Name string
	// 0 for a process that is not a rank.
	ProcessCount int
	// GoroutineRanks is the number of goroutine ranks of each process, or 0 if processes are the ranks.
	GoroutineRanks int `json:",omitempty"`
	// Number of processes that the cases may add.
	AddableProcesses int `json:",omitempty"`
	// Number of ranks that the cases may kill.
	KillableRanks int `json:",omitempty"`
	CellNames     []string
	// Of `ferry bench`, for a benchmark.
	BenchArgs []string
	// Of the benchmark's figures.
	BenchUnit string
	// Further parameters (NAME=VALUE).
	SetParams []string
}

// NewColumn returns a column of cases, given without the prefix.
func NewColumn(name string, ranks int, cases ...string) Column {
	c := Column{Name: name, ProcessCount: ranks}
	for _, x := range cases {
		c.CellNames = append(c.CellNames, name+"/"+x)
	}
	return c
}

// CaseName returns the name of a cell without the prefix.
func (c Column) CaseName(cell string) string { return strings.TrimPrefix(cell, c.Name+"/") }

// IsKit reports whether the cases are those of a kit, which starts its own processes.
func (c Column) IsKit() bool { return c.ProcessCount == 0 }

// openColumn returns the column of report.OpenCase. ranks is the number of the launcher's, or 0. A transport with a
// parameter selftest runs its long self-test in this column only.
func openColumn(s report.Stack, ranks int, values *framework.Values) Column {
	c := Column{Name: report.OpenCase, ProcessCount: cmp.Or(ranks, 2), CellNames: []string{report.OpenCase}}
	if kind, name := s.Transport(); values != nil {
		test := kind + "." + name + ".selftest"
		if _, ok := values.Get(test); ok {
			c.SetParams = []string{test + "=long"}
		}
	}
	if s.Alone() {
		c.ProcessCount = 1
	}
	return c
}

// columnsOf returns the applicable columns for an available stack, benchmarks last.
func (u Suite) columnsOf(s report.Stack) []Column {
	var all []Column
	switch kind, _ := s.Transport(); kind {
	case "btl":
		all = append(all, NewColumn("btltest", 0, btltest.Cases(btltest.Subject{}).Names()...))
	case "mtl":
		all = append(all, NewColumn("mtltest", 0, mtltest.Cases(mtltest.Subject{}).Names()...))
	}
	ranks, processes, room := u.ConformRanks, u.GoroutineProcesses, u.AddableProcesses
	if s.Alone() {
		ranks, processes, room = []int{1}, 1, 0
	} else if s.ViaComponent != "" {
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
		all = append(all, u.BenchColumns...)
	}
	return all
}

// conformColumn returns the column of the conformance cases with that many processes, goroutine ranks in each, and
// room for more processes.
func conformColumn(processes, goroutines, room int) Column {
	name := fmt.Sprint("conform/", processes)
	if goroutines > 0 {
		name += fmt.Sprint("x", goroutines)
	}
	var cases []string
	for _, x := range conform.Cases() {
		if x.MinRanks <= processes*max(1, goroutines) && !(x.IsOfProcesses && goroutines > 0) && !(x.AddsProcesses && room == 0) && !x.KillsRank {
			cases = append(cases, x.Name)
		}
	}
	c := NewColumn(name, processes, cases...)
	c.GoroutineRanks, c.AddableProcesses = goroutines, room
	return c
}

// deathColumns returns a column for each fatal conformance case.
func deathColumns(processes int) (list []Column) {
	for _, x := range conform.Cases() {
		if x.KillsRank && x.MinRanks <= processes {
			c := NewColumn(fmt.Sprint("conform/", processes), processes, x.Name)
			c.KillableRanks = 1
			list = append(list, c)
		}
	}
	return list
}
