// Package matrix qualifies the transports of a machine: every stack (a PML over a
// transport, and over a provider of it) runs every case, in processes of its own,
// and what became of each is a row of a report. `ferry matrix` is its command.
//
// It stands on the kits (btltest, mtltest, pmltest), on internal/conform and on
// `ferry bench`, and adds no check of its own: it finds out which stacks there are,
// starts processes, survives theirs, and writes down what they said.
package matrix

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
)

// A Runner runs suites. Fields are set before the first call.
type Runner struct {
	Registry *framework.Registry
	Values   *framework.Values // in which Set holds
	// Program is started as worker with Args and a task, for Work; and for benchmarks
	// with the command line of `ferry bench`.
	Program string
	Args    []string
	Set     []string // parameters (NAME=VALUE) for all workers
	Suite   plan.Suite
	Limit   time.Duration // of a case; that of OpenCase may be longer (Suite.Open)
	// Components, when not nil, chooses stacks.
	Components *plan.Components
	Cases      *regexp.Regexp // nil: all
	// Flags are those of `ferry matrix` that a row's Command needs besides.
	Flags []string
	// Lanes is how many stacks run at the same time; benchmarks run alone.
	Lanes int
	// Cleanup removes what the processes of a job have left that were killed; see
	// launch.Job.
	Cleanup  func(namespace string)
	Exclude  *plan.Exclusions
	Observer report.Observer // nil: nobody

	mu sync.Mutex // guards what follows, and calls of Observer
	// rows are those so far, by stack and case.
	rows map[[2]string]report.Row
}

// A Plan is what a run will do.
type Plan struct {
	Stacks  []report.Stack
	columns [][]plan.Column // by stack; nil for one that is not there
}

// Cells returns the names of a stack's cases, OpenCase first.
func (p *Plan) Cells(stack int) []string {
	cells := []string{report.OpenCase}
	for _, c := range p.columns[stack] {
		for _, name := range c.Cases {
			cells = append(cells, c.Cell(name))
		}
	}
	return cells
}

// Plan finds the stacks, and chooses among them and their cases. It is an error if
// nothing is left.
func (r *Runner) Plan(ctx context.Context) (*Plan, error) {
	stacks, err := r.Stacks(ctx)
	if err != nil {
		return nil, err
	}
	if r.Components != nil {
		if stacks, err = r.Components.Choose(stacks); err != nil {
			return nil, err
		}
	}
	p := r.over(stacks)
	some := r.Cases == nil || r.Cases.MatchString(report.OpenCase)
	for i := range stacks {
		some = some || len(p.columns[i]) > 0
	}
	if !some && slices.ContainsFunc(stacks, func(s report.Stack) bool { return s.Reason == "" }) {
		return nil, fmt.Errorf("%w: no case of suite %s matches %q; --list shows them", framework.ErrConfig, r.Suite.Name, r.Cases)
	}
	return p, nil
}

// over is the plan for stacks that are chosen.
func (r *Runner) over(stacks []report.Stack) *Plan {
	p := &Plan{Stacks: stacks, columns: make([][]plan.Column, len(stacks))}
	for i, s := range stacks {
		if s.Reason != "" {
			continue
		}
		p.columns[i] = r.Suite.Columns(s)
		if r.Cases != nil {
			p.columns[i] = plan.Filter(p.columns[i], r.Cases.MatchString)
		}
	}
	return p
}

// Run does what the plan says. When ctx ends the report has what there is by then,
// and says so.
func (r *Runner) Run(ctx context.Context, p *Plan) *report.Report {
	out := &report.Report{Suite: r.Suite.Name, Started: time.Now().UTC().Truncate(time.Second), Machine: report.ThisMachine(), Stacks: slices.Clone(p.Stacks)}
	began := time.Now()
	r.rows = map[[2]string]report.Row{}
	counts := map[string]int{}
	for i, s := range out.Stacks {
		counts[s.Name] = len(p.Cells(i))
	}
	r.observe(func(o report.Observer) { o.Begin(slices.Clone(out.Stacks), counts) })

	lanes := make([]*lane, len(out.Stacks)) // nil: it could not be opened
	room := make(chan struct{}, max(r.Lanes, 1))
	var wg sync.WaitGroup
	for i := range out.Stacks {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			lanes[i] = r.stack(ctx, &out.Stacks[i], p.columns[i])
		})
	}
	wg.Wait()
	for i, l := range lanes {
		for _, c := range p.columns[i] {
			if l != nil && c.Bench != nil && ctx.Err() == nil {
				l.measure(ctx, c)
			}
		}
	}

	if ctx.Err() != nil {
		out.Partial = context.Cause(ctx).Error()
	}
	for i, s := range out.Stacks {
		for _, cell := range p.Cells(i) {
			row, ok := r.rows[[2]string{s.Name, cell}]
			if !ok && out.Partial == "" {
				continue // it could not be opened
			}
			if !ok {
				row = report.Row{Stack: s.Name, Provider: s.Provider, Case: cell, Status: report.Skip, Reason: "not run: " + out.Partial}
			}
			out.Rows = append(out.Rows, row)
		}
	}
	out.Machine.Libraries = report.Libraries(out.Stacks)
	out.Seconds = time.Since(began).Seconds()
	return out
}

// stack runs what one stack has, without the benchmarks. It returns nil if the
// stack could not be opened.
func (r *Runner) stack(ctx context.Context, s *report.Stack, columns []plan.Column) *lane {
	open := plan.OpenColumn(*s)
	if s.Reason != "" {
		row := r.newRow(*s, open, "")
		row.Status, row.Reason = s.Absent(), s.Reason
		r.done(*s, row)
		return nil
	}
	l := &lane{Runner: r, stack: s}
	if l.cases(ctx, open).Status != report.Pass {
		return nil
	}
	for _, c := range columns {
		if c.Bench == nil {
			l.cases(ctx, c)
		}
	}
	return l
}

// newRow is the row of a case, without its outcome.
func (r *Runner) newRow(s report.Stack, c plan.Column, testCase string) report.Row {
	row := report.Row{Stack: s.Name, Provider: s.Provider, Case: c.Cell(testCase), Ranks: c.Ranks}
	if c.Bench != nil {
		row.Command = r.benchCommand(s, c)
		return row
	}
	program := []string{"ferry", "matrix"}
	if strings.HasPrefix(c.Name, "conform/") && !s.Alone() {
		program = append(program, "--ranks", fmt.Sprint(c.Ranks))
	}
	row.Command = r.again(program, s, "^"+regexp.QuoteMeta(row.Case)+"$")
	return row
}

// again is the command that runs some cases of a stack, as this run does.
func (r *Runner) again(program []string, s report.Stack, cases string) string {
	words := slices.Concat(program, []string{"--components", s.Name, "--cases", cases, "--suite", r.Suite.Name}, r.Flags)
	for _, set := range r.Set {
		words = append(words, "--set", set)
	}
	return quote(words)
}

// quote makes a line for a shell.
func quote(words []string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+/.,:%@"
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if w == "" || strings.Trim(w, plain) != "" {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

func (r *Runner) running(s report.Stack, cell string) {
	r.observe(func(o report.Observer) { o.Running(s.Name, cell) })
}

// done takes a row, and returns it as it is in the report.
func (r *Runner) done(s report.Stack, row report.Row) report.Row {
	r.Exclude.Apply(s, &row)
	r.observe(func(o report.Observer) {
		r.rows[[2]string{row.Stack, row.Case}] = row
		o.Done(row)
	})
	return row
}

// observe calls f with the observer, one call at a time.
func (r *Runner) observe(f func(report.Observer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Observer == nil {
		f(nobody{})
		return
	}
	f(r.Observer)
}

// nobody is an Observer that doesn't listen.
type nobody struct{}

func (nobody) Begin([]report.Stack, map[string]int) {}
func (nobody) Running(string, string)               {}
func (nobody) Done(report.Row)                      {}
