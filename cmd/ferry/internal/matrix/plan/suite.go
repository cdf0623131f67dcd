// Package plan says what `ferry matrix` will try: which stacks there are, which cases
// each has, and which of them are known to fail.
package plan

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// A Suite says how much a run tries.
type Suite struct {
	Name     string
	Policies []cid.Policy  // of pmltest
	Ranks    []int         // of the conformance cases
	Limit    time.Duration // of a case
	// Open is the limit of OpenCase, if that is longer. Transports have limits of their
	// own for it, and say more than that it did not end.
	Open time.Duration
	// Patience is how long the cases of one stack that don't end may take together,
	// before the rest of the stack is given up; 0: for ever.
	Patience time.Duration

	Benches []bench
}

// A bench is a benchmark of `ferry bench` as a case.
type bench struct {
	name, Command string
	Flags         []string
	Unit          string
}

// Full is everything.
func Full() Suite {
	return Suite{
		Name: "full", Policies: pmltest.Policies, Ranks: []int{2, 4, 8}, Limit: time.Minute, Open: time.Minute,
		Benches: []bench{
			{"latency", "latency", []string{"-m", "1:4MiB"}, "us"},
			{"rate", "mbw_mr", []string{"-m", "1:4KiB"}, "msg/s"},
			{"bandwidth", "bw", []string{"-m", "1:4MiB"}, "MB/s"},
		},
	}
}

// Quick shows in a minute or two what works. What it leaves out of Full is here, and
// nowhere else.
func Quick() Suite {
	return Suite{
		Name: "quick",
		// The policy of communicators that are made by Dup, which asks most of a PML.
		Policies: []cid.Policy{cid.PolicyLazy},
		Ranks:    []int{2},
		// The longest take a second on a quiet machine.
		Limit: 8 * time.Second,
		// mtl.ofi.selftest_timeout (10 s), half as long again for what does not even come
		// back from that, and the start of the processes.
		Open:     20 * time.Second,
		Patience: 24 * time.Second,
		// Enough iterations for two digits.
		Benches: []bench{
			{"latency", "latency", []string{"-m", "1:1MiB", "-i", "200", "-x", "20"}, "us"},
			{"rate", "mbw_mr", []string{"-m", "1:4KiB", "-i", "20", "-x", "2"}, "msg/s"},
			{"bandwidth", "bw", []string{"-m", "1:1MiB", "-i", "8", "-x", "2"}, "MB/s"},
		},
	}
}

// A column is cases of one stack that one worker runs, one after the other.
type Column struct {
	Name  string   // what the names of its cells begin with: "btltest", "conform/2"; or the only cell's
	Ranks int      // processes of the worker; 0: one, which is no rank
	Cases []string // the rest of the cells' names; one that is empty is the column itself
	Bench *bench
}

// cell is the name of a case in a report.
func (c Column) Cell(testCase string) string {
	if testCase == "" {
		return c.Name
	}
	return c.Name + "/" + testCase
}

// openColumn is the column of OpenCase.
func OpenColumn(s report.Stack) Column {
	ranks := 2
	if s.Alone() {
		ranks = 1
	}
	return Column{Name: report.OpenCase, Ranks: ranks, Cases: []string{""}}
}

// columns returns what the suite has for a stack that can be opened, the benchmarks
// last. Cases that don't apply to such a stack are not among them.
func (u Suite) Columns(s report.Stack) []Column {
	var all []Column
	kit := func(name string, cases []string) { all = append(all, Column{Name: name, Cases: cases}) }
	switch kind, _ := s.Transport(); kind {
	case "btl":
		kit("btltest", btltest.Cases(btltest.Subject{}).Names())
	case "mtl":
		kit("mtltest", mtltest.Cases(mtltest.Subject{}).Names())
	}
	if s.Via != "" && !s.Alone() {
		for _, p := range u.Policies {
			kit("pmltest/"+p.String(), pmltest.Cases(pmltest.Stack{}, p).Names())
		}
	}
	ranks := u.Ranks
	if s.Alone() {
		ranks = []int{1}
	}
	for _, n := range ranks {
		c := Column{Name: fmt.Sprint("conform/", n), Ranks: n}
		for _, x := range conform.Cases() {
			if x.Ranks <= n {
				c.Cases = append(c.Cases, x.Name)
			}
		}
		all = append(all, c)
	}
	if !s.Alone() {
		for i := range u.Benches {
			all = append(all, Column{Name: "bench/" + u.Benches[i].name, Ranks: 2, Cases: []string{""}, Bench: &u.Benches[i]})
		}
	}
	return all
}

// filter keeps the cells that pass.
func Filter(all []Column, pass func(cell string) bool) []Column {
	var out []Column
	for _, c := range all {
		var cases []string
		for _, name := range c.Cases {
			if pass(c.Cell(name)) {
				cases = append(cases, name)
			}
		}
		if c.Cases = cases; len(cases) > 0 {
			out = append(out, c)
		}
	}
	return out
}
