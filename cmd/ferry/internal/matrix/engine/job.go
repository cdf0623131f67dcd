package matrix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// A Job is a run whose ranks are there already, on one node or on many: each process
// of a launcher's job calls Run. For each stack all of them open a session with its
// parameters, go through the conformance cases together, and two of them, of
// different nodes where there are, through the benchmarks; then they close it, and
// go on with the next.
//
// Between stacks they meet through the bootstrap, so that a transport that is broken
// keeps nobody from saying so. A rank can't be replaced: when one is lost, the run is
// over, and the report says so. The kits are left out: they make processes of their
// own, of one node.
type Job struct {
	*Runner
	Options []mpi.SessionOption // of all sessions
	// Bench runs a benchmark with the arguments of `ferry bench` among all ranks of a
	// communicator; rank 0 hears of the figures.
	Bench func(ctx context.Context, s *mpi.Session, c *mpi.Comm, args []string, each func(size int, value float64)) error
	// Save takes the report as it is before each stack, marked as partial: it is all
	// that there will be if rank 0 dies with that stack. nil: nobody takes it.
	Save func(*report.Report)

	client bootstrap.Client
	group  []framework.Proc // the world
	rank   int
	hosts  []string       // by rank
	player int            // rank 0's partner in benchmarks; 0: none
	report *report.Report // rank 0's
	plan   *Plan
	began  time.Time
}

// Open joins the launcher's job. The caller closes it, after Run.
func (j *Job) Open(ctx context.Context) error {
	selection, err := j.Registry.Select(ctx, framework.Bootstrap, j.Values)
	if err != nil {
		return err
	}
	choice, err := selection.One()
	if err != nil {
		return err
	}
	c, ok := choice.Component.(bootstrap.Component)
	if !ok {
		return fmt.Errorf("%w: bootstrap %s (%T) is none", framework.ErrConfig, choice.Verdict.Name, choice.Component)
	}
	j.client, err = c.Open(ctx, bootstrap.Env{Params: choice.Params, Logger: slog.New(slog.DiscardHandler), Timeout: j.patience()})
	if err != nil {
		return err
	}
	id := j.client.Identity()
	if id.Singleton {
		return errors.Join(fmt.Errorf("%w: no launcher has started this process, so that it has no job: `ferry run -n 4 ferry matrix --job`, or leave --job out",
			framework.ErrConfig), j.client.Close())
	}
	j.rank = int(id.Proc.Rank)
	for rank := range id.Size {
		j.group = append(j.group, framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(rank)})
	}
	j.Suite.Ranks = []int{id.Size}
	return nil
}

// Close leaves the job.
func (j *Job) Close() error { return j.client.Close() }

// Rank is this process's number; 0 has the report.
func (j *Job) Rank() int { return j.rank }

// hangs is when a rank of which nothing is heard counts as lost: a case obeys after
// its limit, and then waits twice as long for the other ranks' (conform.On); to open
// a stack is a session and a communicator.
func (j *Job) hangs() time.Duration { return 3*max(j.Limit, j.Suite.Open) + 5*time.Second }

// patience is how long ranks wait for one another at a meeting: for rank 0, which
// finds out what there is, for the two that play benchmarks, and for one that hangs.
func (j *Job) patience() time.Duration {
	return time.Minute + j.hangs() + time.Duration(len(j.Suite.Benches)+1)*j.Limit
}

// Run runs the plan, which rank 0 has made by Plan and others leave nil. Rank 0 gets
// the report; when ctx ends, or a rank is lost, it has what there is by then, and
// says so. Other ranks get nil, and an error that no report can tell. When ranks were
// not started alike nothing runs, and rank 0's error (ErrConfig) says what differs.
func (j *Job) Run(ctx context.Context, plan *Plan) (*report.Report, error) {
	j.began = time.Now()
	err := j.begin(ctx, plan)
	if j.rank == 0 && errors.Is(err, framework.ErrConfig) {
		return nil, err
	}
	ctx, stop := j.attend(ctx)
	defer stop()
	for i := 0; err == nil && i < len(j.plan.Stacks); i++ {
		err = j.stack(ctx, i)
	}
	if j.report == nil {
		if isTold(err) {
			err = nil
		}
		return nil, err
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		j.report.Partial = err.Error()
	}
	j.complete(j.report)
	return j.report, nil
}

// save hands on what there is before a stack.
func (j *Job) save(stack int) {
	if j.rank > 0 || j.Save == nil {
		return
	}
	r := *j.report
	r.Partial = fmt.Sprintf("nothing was written after stack %s (%d of %d) had begun", r.Stacks[stack].Name, stack+1, len(r.Stacks))
	j.complete(&r)
	j.Save(&r)
}

// columns are those of a stack that a job runs, and the kits, which it does not.
func (j *Job) columns(stack int) (run, kits []plan.Column) {
	if j.idle(j.plan.Stacks[stack]) {
		return nil, nil
	}
	for _, c := range j.plan.columns[stack] {
		switch {
		case c.Ranks == 0:
			kits = append(kits, c)
		case c.Bench == nil || len(j.group) > 1:
			run = append(run, c)
		}
	}
	return run, kits
}

// idle says that a stack reaches no other process, and there are some.
func (j *Job) idle(s report.Stack) bool { return s.Alone() && len(j.group) > 1 }

// cells are the cases of a stack that a report has: OpenCase, what runs, and a case
// for each kit as a whole.
func (j *Job) cells(stack int) []string {
	cells := []string{report.OpenCase}
	run, kits := j.columns(stack)
	for _, c := range kits {
		cells = append(cells, c.Name)
	}
	for _, c := range run {
		for _, name := range c.Cases {
			cells = append(cells, c.Cell(name))
		}
	}
	return cells
}
