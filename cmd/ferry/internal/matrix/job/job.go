// Package job is `ferry matrix --job`: a run whose ranks are there already, on one
// node or on many, as a launcher has started them. For each stack all of them open a
// session with its parameters, go through the conformance cases together, and two of
// them, of different nodes where there are, through the benchmarks; then they close
// it, and go on with the next.
//
// Between stacks they meet through the bootstrap, so that a transport that is broken
// keeps nobody from saying so. A rank can't be replaced: when one is lost, the run is
// over, and the report says so. The kits are left out: they make processes of their
// own, of one node.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
)

// A Job is one rank's part of the run. Fields are set before Open.
type Job struct {
	*plan.Request
	// Save takes the report as it is before each stack, marked as partial: it is all
	// that there will be if rank 0 dies with that stack. nil: nobody takes it.
	SavePartial func(*report.Report)

	client         bootstrap.Client
	group          []framework.Proc // the world
	rank           int
	benchPartner   int // rank 0's partner in benchmarks; 0: none
	plan           *plan.Plan
	record         *plan.Record
	cancelRun      context.CancelCauseFunc // ends the run before its time
	isLeaving      atomic.Bool             // it is about to be called
	wasInterrupted bool

	mu    sync.Mutex
	hosts []string // by rank; guarded by mu
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
		return fmt.Errorf("%w: bootstrap %s (%T) is not one", framework.ErrConfig, choice.Verdict.Name, choice.Component)
	}
	j.client, err = c.Open(ctx, bootstrap.Env{Params: choice.Params, Logger: slog.New(slog.DiscardHandler), Timeout: j.exchangeTimeout()})
	if err == nil {
		j.client, err = bootstrap.CheckedClient(choice.Verdict.Name, j.client)
	}
	if err != nil {
		return err
	}
	if j.client.Identity().Singleton {
		return errors.Join(fmt.Errorf("%w: no launcher started this process, so it has no job: `ferry run -n 4 ferry matrix --job`, or leave --job out",
			framework.ErrConfig), j.client.Close())
	}
	j.setIdentity()
	return nil
}

// enter takes from the client who is who.
func (j *Job) setIdentity() {
	id := j.client.Identity()
	j.rank, j.Ranks, j.Suite.Ranks, j.Suite.Processes = int(id.Proc.Rank), id.Size, []int{id.Size}, id.Size
	j.Suite.Room = 0          // Added processes do not know the stack.
	j.Suite.HasDeaths = false // A rank cannot be replaced.
	for rank := range id.Size {
		j.group = append(j.group, framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(rank)})
	}
}

// Close leaves the job.
func (j *Job) Close() error { return j.client.Close() }

// Rank is this process's number; 0 has the report.
func (j *Job) Rank() int { return j.rank }

// hangs is when a rank of which nothing is heard counts as lost: a case obeys after
// its limit, and then waits twice as long for the other ranks' (conform.Run); to open
// a stack is a session and a communicator.
func (j *Job) silenceLimit() time.Duration { return 3*max(j.Limit, j.Suite.Open) + 5*time.Second }

// patience is how long ranks wait for one another at a meeting: for rank 0, which
// finds out what there is, for the two that play benchmarks, and for one that hangs.
func (j *Job) exchangeTimeout() time.Duration {
	return time.Minute + j.silenceLimit() + time.Duration(len(j.Suite.Benches)+1)*j.Limit
}

// Run runs the plan, which rank 0 has made and others leave nil. Rank 0 tells the
// observer, and gets the report; when ctx ends, or a rank is lost, it has what there
// is by then, and says so. Other ranks get nil, and an error that no report can tell.
// When ranks were not started alike nothing runs, and rank 0's error (ErrConfig) says
// what differs.
func (j *Job) Run(ctx context.Context, p *plan.Plan, o report.Observer) (*report.Report, error) {
	if j.plan = p; p != nil {
		j.record = p.Begin(o)
	}
	alive, stop := j.watchForEnd(ctx)
	defer stop()
	err := j.agreeOnPlan(alive)
	if j.rank == 0 && errors.Is(err, framework.ErrConfig) {
		return nil, err
	}
	for i := 0; err == nil && i < len(j.plan.Stacks); i++ {
		err = j.runStack(alive, i)
	}
	if err != nil && ctx.Err() != nil {
		<-alive.Done() // it follows
	}
	if err != nil && alive.Err() != nil { // what came first is the reason of the rest
		err = context.Cause(alive)
	}
	j.wasInterrupted = isInterrupt(err)
	switch {
	case j.rank > 0 && isReported(err):
		return nil, nil
	case j.rank > 0:
		return nil, err
	case err == nil:
		return j.record.Complete(""), nil
	}
	return j.record.Complete(err.Error()), nil
}

// Interrupted says, after Run, that an interrupt has ended it: of this rank, or of
// another one.
func (j *Job) WasInterrupted() bool { return j.wasInterrupted }
