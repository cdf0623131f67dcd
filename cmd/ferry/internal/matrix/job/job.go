// Package job implements `ferry matrix --job`, a run over the ranks of an existing launcher job on one node or many. For
// each stack, all ranks open a session with its parameters and run the conformance cases together. Two ranks, on
// different nodes if possible, run the benchmarks.
//
// Between stacks the ranks exchange their status through the bootstrap, which works over a broken transport, too. A lost
// rank cannot be replaced and ends the run with a partial report. Kits start processes of their own on one node and are
// left out.
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

// A Job is one rank of the run. Set its fields before Open.
type Job struct {
	*plan.Request
	// SavePartial receives the partial report before each stack, for the case that rank 0 is lost. It may be nil.
	SavePartial func(*report.Report)

	client bootstrap.Client
	group  []framework.Proc
	rank   int
	// Partner of rank 0 in benchmarks; 0 without one.
	benchPartner int
	plan         *plan.Plan
	record       *plan.Record
	cancelRun    context.CancelCauseFunc
	// cancelRun is about to be called.
	isLeaving      atomic.Bool
	wasInterrupted bool

	mu sync.Mutex
	// By rank. Guarded by mu.
	hostByRank []string
}

// Open joins the launcher's job. The caller closes it after Run.
func (j *Job) Open(ctx context.Context) error {
	selection, err := j.Registry.Select(ctx, framework.Bootstrap, j.Values)
	if err != nil {
		return err
	}
	choice, err := selection.TakeFirst()
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
	if j.client.Identity().IsSingleton {
		return errors.Join(fmt.Errorf("%w: no launcher started this process, so it has no job: `ferry run -n 4 ferry matrix --job`, or leave --job out",
			framework.ErrConfig), j.client.Close())
	}
	j.setIdentity()
	return nil
}

// setIdentity sets the ranks and the limits of the suite from the client's identity.
func (j *Job) setIdentity() {
	id := j.client.Identity()
	j.rank, j.LauncherRanks, j.Suite.ConformRanks, j.Suite.GoroutineProcesses = int(id.Proc.Rank), id.Size, []int{id.Size}, id.Size
	j.Suite.AddableProcesses = 0 // Added processes do not have the stack's parameters.
	j.Suite.HasDeaths = false    // A rank cannot be replaced.
	for rank := range id.Size {
		j.group = append(j.group, framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(rank)})
	}
}

// Close leaves the job.
func (j *Job) Close() error { return j.client.Close() }

// Rank returns the rank of this process. Rank 0 has the report.
func (j *Job) Rank() int { return j.rank }

// silenceLimit is the time without an event after which a rank is lost. It covers the limit of a case and the two
// further limits that conform.Run waits for the other ranks.
func (j *Job) silenceLimit() time.Duration {
	return 3*max(j.CaseLimit, j.Suite.OpenLimit) + 5*time.Second
}

// exchangeTimeout limits the wait for other ranks in an exchange. Rank 0 may be surveying transports, two ranks may
// run benchmarks, and a rank may hang until its silenceLimit.
func (j *Job) exchangeTimeout() time.Duration {
	return time.Minute + j.silenceLimit() + time.Duration(len(j.Suite.BenchColumns)+1)*j.CaseLimit
}

// Run executes the plan. Rank 0 passes the plan and the observer, and gets the report, which is partial if ctx is
// canceled or a rank is lost. Other ranks pass nil, and get nil and the error that the report cannot contain. If the
// settings of the ranks differ, no case runs and rank 0 returns an ErrConfig.
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
		<-alive.Done()
	}
	if err != nil && alive.Err() != nil { // The first end is the reason of later errors.
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

// WasInterrupted reports whether an interrupt of any rank has ended Run.
func (j *Job) WasInterrupted() bool { return j.wasInterrupted }
