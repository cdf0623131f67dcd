package plan

import (
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// A Record is what has come of a plan so far. Its methods may be called at any time,
// also at once.
type Record struct {
	*Plan
	// Report is what is known beside rows. Who runs a stack changes its entry.
	Report *report.Report

	observer report.Observer
	began    time.Time
	mu       sync.Mutex // guards rows, and calls of observer
	rows     map[[2]string]report.Row
}

// Begin begins a record, and tells an observer of it, which may be nil.
func (p *Plan) Begin(o report.Observer) *Record {
	r := &Record{Plan: p, observer: o, began: time.Now(), rows: map[[2]string]report.Row{}}
	r.Report = &report.Report{Suite: p.Suite.Name, Started: r.began.UTC().Truncate(time.Second), Machine: report.ThisMachine(), Stacks: slices.Clone(p.Stacks)}
	if o != nil {
		counts := map[string]int{}
		for i, s := range p.Stacks {
			counts[s.Name] = len(p.Cells(i))
		}
		o.Begin(slices.Clone(p.Stacks), counts)
	}
	return r
}

// Running says that a stack has begun a case.
func (r *Record) Running(s report.Stack, cell string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observer != nil {
		r.observer.Running(s.Name, cell)
	}
}

// Done takes a row, and returns it as it is in the report.
func (r *Record) Done(s report.Stack, row report.Row) report.Row {
	r.Exclude.Apply(s, &row)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[[2]string{row.Stack, row.Case}] = row
	if r.observer != nil {
		r.observer.Done(row)
	}
	return row
}

// Complete is the report of what there is by now. partial says why there will be no
// more; empty: that was all. A stack that could not be opened has no other rows.
func (r *Record) Complete(partial string) *report.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := *r.Report
	out.Partial = partial
	for i, s := range out.Stacks {
		open, tried := r.rows[[2]string{s.Name, report.OpenCase}]
		for _, c := range r.Columns[i] {
			for _, cell := range c.Cells {
				row, ok := r.rows[[2]string{s.Name, cell}]
				switch {
				case ok:
					out.Rows = append(out.Rows, row)
				case partial != "" && (!tried || open.Status == report.Pass):
					out.Rows = append(out.Rows, r.Row(s, c, cell, report.Skip, "not run: "+partial))
				}
			}
		}
	}
	out.Machine.Libraries = report.Libraries(out.Stacks)
	out.Seconds = time.Since(r.began).Seconds()
	return &out
}
