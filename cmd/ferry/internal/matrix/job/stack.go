package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/worker"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// runStack qualifies one stack in all ranks. An error ends the run.
func (j *Job) runStack(ctx context.Context, i int) error {
	s := j.plan.Stacks[i]
	switch {
	case s.Reason != "":
		j.recordUnrun(i, s.Absent(), s.Reason)
		return nil
	case j.IsIdle(s):
		j.recordUnrun(i, report.Skip, "no message leaves the process: run `ferry matrix` without --job on a node")
		return nil
	}
	j.prepareStack(i)
	// All ranks open the stack once before one waits for a peer.
	v := j.supervise(ctx, s, func(*stackRun) error {
		session, err := j.openSession(ctx, i)
		if err != nil {
			return err
		}
		return session.Close()
	})
	statuses, err := j.exchangeStatus(ctx, fmt.Sprint("open ", i), rankStatus{FailureReason: v.failureReason(), LostReason: v.lostReason})
	if err != nil {
		j.recordOwnLog(i, v, err)
		return err
	}
	if reasons := j.joinReasons(statuses, func(w rankStatus) string { return w.FailureReason }); reasons != "" {
		status := report.Fail
		switch {
		case slices.ContainsFunc(statuses, func(w rankStatus) bool { return w.LostReason != "" }):
			status = report.Timeout
		case !slices.ContainsFunc(statuses, func(w rankStatus) bool { return w.FailureReason == "" }):
			status = report.Unavailable
		}
		j.recordUnrun(i, status, reasons)
		return j.lossError(statuses)
	}

	v = j.supervise(ctx, s, func(v *stackRun) error { return j.runCases(ctx, i, v) })
	key := fmt.Sprint("ferry.matrix.stack ", i)
	if err = context.Cause(ctx); err == nil {
		text, marshalErr := json.Marshal(v.stackLog)
		if err := errors.Join(marshalErr, j.client.Put(ctx, key, text)); err != nil {
			return err
		}
		statuses, err = j.exchangeStatus(ctx, fmt.Sprint("close ", i), rankStatus{LostReason: v.lostReason})
	}
	if err != nil {
		j.recordOwnLog(i, v, err)
		return err
	}
	if j.rank > 0 {
		return j.lossError(statuses)
	}
	logs := make([]stackLog, len(j.group))
	for rank, p := range j.group {
		text, err := j.client.Get(ctx, p, key)
		if err == nil {
			err = json.Unmarshal(text, &logs[rank])
		}
		if err != nil {
			return err
		}
	}
	j.recordLogs(i, logs)
	return j.lossError(statuses)
}

// openSession opens a session over a stack.
func (j *Job) openSession(ctx context.Context, i int) (*mpi.Session, error) {
	opts := append(settings.Session(), mpi.WithBootstrap(j.client))
	opts = append(opts, settings.Options(slices.Concat(j.Set, j.plan.Stacks[i].Set))...)
	ctx, cancel := conform.Within(ctx, j.LimitOf(j.plan.Stacks[i], j.plan.Columns[i][0]))
	defer cancel()
	return mpi.OpenSession(ctx, opts...)
}

// runCases runs this rank's part of a stack. The cause of an error has been recorded.
func (j *Job) runCases(ctx context.Context, i int, v *stackRun) error {
	session, err := j.openSession(ctx, i)
	if err != nil {
		return err
	}
	var world *mpi.Comm
	defer func() {
		j.hasEnded(ctx) // Publishes an early end before the other ranks see this one leave.
		if world != nil {
			_ = world.Close() // The session reports the error.
		}
		err := session.Close()
		if errors.Is(err, mpi.ErrPending) { // A failed case has left communicators.
			v.markLost(fmt.Sprintf("can't leave %s: %v", j.plan.Stacks[i].Name, err))
		} else if err != nil {
			v.Begin(report.OpenCase)
			v.End(worker.Event{Status: report.Fail, Reason: fmt.Sprintf("close: %v", err)})
		}
	}()
	if world, err = j.checkOpen(ctx, i, session, v); err != nil {
		return err
	}
	for _, c := range j.plan.Columns[i][1:] {
		switch {
		case c.IsKit():
		case c.Bench == nil:
			err = worker.Conform(ctx, session, world, c, j.CaseLimit, v)
		case j.rank == 0 || j.rank == j.benchPartner:
			err = j.runBench(ctx, session, world, c, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkOpen runs report.OpenCase: it creates a communicator of all ranks and exchanges messages with the neighbors.
// It may return a communicator together with an error.
func (j *Job) checkOpen(ctx context.Context, i int, session *mpi.Session, v *stackRun) (*mpi.Comm, error) {
	ctx, cancel := conform.Within(ctx, j.LimitOf(j.plan.Stacks[i], j.plan.Columns[i][0]))
	defer cancel()
	world, err := settings.World(ctx, session, "ferry.matrix")
	if err != nil {
		return nil, err
	}
	e, err := worker.CheckNeighbors(ctx, session, world)
	if err == nil {
		v.End(e)
	}
	return world, err
}

// runBench runs a benchmark between rank 0 and its partner. After an error, further benchmarks cannot run.
func (j *Job) runBench(ctx context.Context, session *mpi.Session, world *mpi.Comm, c plan.Column, v *stackRun) error {
	limited, cancel := conform.Within(ctx, j.CaseLimit)
	defer cancel()
	v.Begin(c.Name)
	var points []report.Point
	err := func() error {
		two, err := world.Group().Incl(0, j.benchPartner)
		if err != nil {
			return err
		}
		comm, err := mpi.CommFromGroup(limited, two, "ferry.matrix."+c.Name)
		if err != nil {
			return err
		}
		err = worker.Measure(limited, session, comm, c, func(p report.Point) { points = append(points, p) })
		return errors.Join(err, comm.Close())
	}()
	e := worker.EventOf(err)
	e.Points = points
	v.End(e)
	if errors.Is(err, framework.ErrProcFailed) {
		return err
	}
	return context.Cause(ctx)
}
