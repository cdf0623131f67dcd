package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
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
	case s.AbsentReason != "":
		j.recordUnrun(i, s.Absent(), s.AbsentReason)
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
	opts = append(opts, settings.Options(slices.Concat(j.SetParams, j.plan.Stacks[i].SetParams))...)
	ctx, cancel := conform.Within(ctx, j.LimitOf(j.plan.Stacks[i], j.plan.ColumnsByStack[i][0]))
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
	x := &worker.Executor{Session: session, Recorder: v, CaseLimit: j.CaseLimit, BenchLimit: j.CaseLimit, BenchRanks: []int{0, j.benchPartner}}
	opening, cancel := conform.Within(ctx, j.LimitOf(j.plan.Stacks[i], j.plan.ColumnsByStack[i][0]))
	world, err = x.Open(opening)
	cancel()
	if err != nil {
		return err
	}
	for _, c := range j.plan.ColumnsByStack[i][1:] {
		if c.IsKit() {
			continue
		}
		err := x.Run(ctx, world, c)
		if err != nil && c.BenchArgs != nil { // Further cases run, unless the partner is lost.
			v.End(worker.EventOf(err))
			if !errors.Is(err, framework.ErrProcFailed) {
				err = context.Cause(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
