package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// stack has all ranks go through one stack. An error ends the run.
func (j *Job) stack(ctx context.Context, i int) error {
	s := j.plan.Stacks[i]
	switch {
	case s.Reason != "":
		return j.only(s, s.Absent(), s.Reason)
	case j.idle(s):
		return j.only(s, report.Skip, "no message leaves the process: run `ferry matrix` without --job on a node")
	}
	j.save(i)
	run, kits := j.columns(i)
	if j.rank == 0 {
		for _, c := range kits {
			j.leave(s, c)
		}
	}
	// Whether all have the stack is known before anybody waits for a peer.
	v := j.visit(ctx, s, report.OpenCase, func(v *visit) error {
		session, err := j.session(ctx, s)
		if err != nil {
			return err
		}
		return session.Close()
	})
	words, err := j.meet(ctx, fmt.Sprint("open ", i), word{Err: v.failed(), Lost: v.lost})
	if err != nil {
		j.alone(i, run, v, err)
		return err
	}
	if bad := j.collect(words, func(w word) string { return w.Err }); bad != "" {
		status := report.Fail // others have it
		switch {
		case slices.ContainsFunc(words, func(w word) bool { return w.Lost != "" }):
			status = report.Timeout
		case !slices.ContainsFunc(words, func(w word) bool { return w.Err == "" }):
			status = report.Unavailable
		}
		return errors.Join(j.only(s, status, bad), j.bereft(words))
	}

	v = j.visit(ctx, s, report.OpenCase, func(v *visit) error { return j.perform(ctx, s, run, v) })
	if err := context.Cause(ctx); err != nil {
		j.alone(i, run, v, err)
		return err
	}
	key := fmt.Sprint("ferry.matrix.stack ", i)
	text, err := json.Marshal(v.account)
	if err == nil {
		err = j.client.Put(ctx, key, text)
	}
	if err != nil {
		return err
	}
	if words, err = j.meet(ctx, fmt.Sprint("close ", i), word{Lost: v.lost}); err != nil {
		j.alone(i, run, v, err)
		return err
	}
	if j.rank == 0 {
		accounts := make([]account, len(j.group))
		for rank, p := range j.group {
			text, err := j.client.Get(ctx, p, key)
			if err == nil {
				err = json.Unmarshal(text, &accounts[rank])
			}
			if err != nil {
				return err
			}
		}
		j.merge(i, run, accounts)
	}
	return j.bereft(words)
}

// alone makes rows of what rank 0 has seen itself, where others can't tell because
// of err. A rank that was lost is the fault of the case that ran, or of the stack.
func (j *Job) alone(stack int, run []plan.Column, v *visit, err error) {
	if j.rank > 0 {
		return
	}
	a := v.account
	if isTold(err) && !slices.ContainsFunc(a.Findings, func(f finding) bool { return f.Status.Bad() }) {
		a.Findings = append(a.Findings, finding{Case: report.OpenCase, Status: report.Fail, Reason: err.Error()})
	}
	if len(a.Findings) > 0 {
		j.merge(stack, run, []account{a})
	}
}

// leave says why a kit is not run, and what runs it.
func (j *Job) leave(s report.Stack, kit plan.Column) {
	row := j.newRow(s, kit.Name)
	row.Status, row.Reason = report.Skip, "kits make processes of one node: run `ferry matrix` without --job there"
	row.Command = j.again([]string{"ferry", "matrix"}, s, "^"+kit.Name+"/")
	j.done(s, row)
}

// only is the outcome of a stack that is not run.
func (j *Job) only(s report.Stack, status report.Status, reason string) error {
	if j.rank == 0 {
		j.outcome(s, report.OpenCase, status, reason)
	}
	return nil
}

// bereft is the error of a run that has lost ranks.
func (j *Job) bereft(words []word) error {
	if lost := j.collect(words, func(w word) string { return w.Lost }); lost != "" {
		return told{errors.New(lost)}
	}
	return nil
}

// session opens a session over a stack.
func (j *Job) session(ctx context.Context, s report.Stack) (*mpi.Session, error) {
	opts := append(slices.Clone(j.Options), mpi.WithBootstrap(j.client))
	for _, set := range slices.Concat(j.Set, s.Set) {
		name, value, _ := strings.Cut(set, "=")
		opts = append(opts, mpi.WithParam(name, value))
	}
	ctx, cancel := limited(ctx, j.limit(plan.OpenColumn(s)))
	defer cancel()
	return mpi.OpenSession(ctx, opts...)
}

// limited is the context of a case.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w for %v", conform.ErrHung, limit))
}

// perform is one rank's part of a stack that all have. An error ends it early, and
// has been written down.
func (j *Job) perform(ctx context.Context, s report.Stack, run []plan.Column, v *visit) error {
	session, err := j.session(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		err := session.Close()
		if errors.Is(err, mpi.ErrPending) { // a case that failed has left communicators
			v.give(fmt.Sprintf("can't leave %s: %v", s.Name, err))
		} else if err != nil {
			v.begin(report.OpenCase)
			v.end(finding{Status: report.Fail, Reason: fmt.Sprintf("close: %v", err)})
		}
	}()
	world, err := j.meetOver(ctx, s, session, v)
	if err != nil {
		return err
	}
	defer world.Close()
	for _, c := range run {
		switch {
		case c.Bench == nil:
			err = j.conform(ctx, session, world, c, v)
		case j.rank == 0 || j.rank == j.player:
			err = j.play(ctx, session, world, c, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// meetOver is OpenCase: a communicator of all, and a message to the next rank.
func (j *Job) meetOver(ctx context.Context, s report.Stack, session *mpi.Session, v *visit) (*mpi.Comm, error) {
	ctx, cancel := limited(ctx, j.limit(plan.OpenColumn(s)))
	defer cancel()
	all, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, err
	}
	world, err := mpi.CommFromGroup(ctx, all, "ferry.matrix")
	if err != nil {
		return nil, err
	}
	device, mode, err := greet(ctx, session, world)
	if err != nil {
		return nil, errors.Join(err, world.Close())
	}
	v.end(finding{Status: report.Pass, Device: device, Mode: mode})
	return world, nil
}

// conform runs conformance cases.
func (j *Job) conform(ctx context.Context, session *mpi.Session, world *mpi.Comm, c plan.Column, v *visit) error {
	var cases []conform.Case
	for _, x := range conform.Cases() {
		if !slices.Contains(c.Cases, x.Name) {
			continue
		}
		run := x.Run
		x.Run = func(ctx context.Context, env conform.Env) error {
			v.begin(c.Cell(x.Name))
			return run(ctx, env)
		}
		cases = append(cases, x)
	}
	return conform.On(ctx, session, world, cases, j.Limit, func(r conform.Result) {
		v.begin(c.Cell(r.Case.Name))
		v.end(judged(r))
	})
}

// play runs a benchmark between rank 0 and its partner. The error says that there is
// no sense in another one.
func (j *Job) play(ctx context.Context, session *mpi.Session, world *mpi.Comm, c plan.Column, v *visit) error {
	inTime, cancel := limited(ctx, j.limit(c))
	defer cancel()
	v.begin(c.Cell(""))
	var points []report.Point
	err := func() error {
		two, err := world.Group().Incl(0, j.player)
		if err != nil {
			return err
		}
		comm, err := mpi.CommFromGroup(inTime, two, "ferry.matrix."+c.Name)
		if err != nil {
			return err
		}
		args := append([]string{c.Bench.Command}, c.Bench.Flags...)
		err = j.Bench(inTime, session, comm, args, func(size int, value float64) {
			points = append(points, report.Point{Size: size, Value: value, Unit: c.Bench.Unit})
		})
		return errors.Join(err, comm.Close())
	}()
	f := found(err)
	f.Points = points
	v.end(f)
	if errors.Is(err, framework.ErrProcFailed) {
		return err
	}
	return context.Cause(ctx)
}
