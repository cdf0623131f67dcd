package worker

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// A Pool starts workers. Fields are set before the first call.
type Pool struct {
	// Program is started with Args and a task, for Work.
	Program string
	Args    []string
	Set     []string // parameters (NAME=VALUE) for all workers
	// Lanes is how many stacks run at the same time; benchmarks run alone.
	Lanes int
	// Cleanup removes what the processes of a job have left that were killed; see
	// launch.Job.
	Cleanup func(namespace string)
}

// Ask has a worker survey a stack: it is a plan.Ask.
func (p *Pool) Ask(ctx context.Context, s report.Stack, c plan.Column, env []string) (a plan.Answer, ok bool) {
	end := p.work(ctx, assignment{stack: s, task: task{Column: c}, env: env, limit: plan.SurveyLimit, hear: func(e Event) error {
		if e.Answer != nil {
			a = *e.Answer
		}
		if e.Status == report.Unavailable {
			a.Absent = e.Reason
		}
		return nil
	}})
	a.Log = end.output
	return a, a.Absent != "" || !end.lost()
}

// Run does what the plan says. When ctx ends the report has what there is by then,
// and says so.
func (p *Pool) Run(ctx context.Context, r *plan.Record) *report.Report {
	lanes := make([]*lane, len(r.Stacks)) // nil: it could not be opened
	var g errgroup.Group
	g.SetLimit(max(p.Lanes, 1))
	for i := range lanes {
		g.Go(func() error {
			lanes[i] = p.stack(ctx, r, i)
			return nil
		})
	}
	_ = g.Wait() // none of them gives one
	for i, l := range lanes {
		for _, c := range r.Columns[i] {
			if l != nil && c.Bench != nil {
				l.cases(ctx, c)
			}
		}
	}
	if ctx.Err() != nil {
		return r.Complete(context.Cause(ctx).Error())
	}
	return r.Complete("")
}

// stack runs what one stack has, without the benchmarks. It returns nil if the
// stack could not be opened.
func (p *Pool) stack(ctx context.Context, r *plan.Record, i int) *lane {
	l := &lane{Pool: p, record: r, stack: &r.Report.Stacks[i]}
	for n, c := range r.Columns[i] {
		switch {
		case l.stack.Reason != "":
			r.Done(*l.stack, r.Row(*l.stack, c, report.OpenCase, l.stack.Absent(), l.stack.Reason))
			return nil
		case c.Bench != nil:
		case l.cases(ctx, c).Status != report.Pass && n == 0:
			return nil
		}
	}
	return l
}

// A lane is the run of one stack.
type lane struct {
	*Pool
	record *plan.Record
	stack  *report.Stack
	waited time.Duration // for cases that did not end, and are not excluded
}
