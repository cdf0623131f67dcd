package job

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/worker"
)

// cancelGrace is the time that a case has to end after the run was canceled.
const cancelGrace = time.Second

// A stackLog is the report of one rank about one stack.
type stackLog struct {
	Events []worker.Event `json:"said"`
	// LastCase is the case after which the rank skipped the others, or "".
	LastCase string `json:"ended,omitempty"`
}

// A stackRun is one rank's run over one stack. It is a worker.CaseRecorder whose methods have no effect after its end.
type stackRun struct {
	stackLog
	// Reason why the rank cannot continue, or "".
	lostReason string

	ctx         context.Context
	hasEnded    func() bool
	onBegin     func(cell string)
	runningCase string
	lastCase    string
	beganAt     time.Time
	// Figures of the running case.
	casePoints []report.Point
	// Executed by the goroutine of supervise.
	updates     chan func()
	updatesDone chan struct{}
}

// supervise calls f, whose first case is report.OpenCase, until it returns. A rank without events for silenceLimit is
// lost, while f still runs and holds the transport.
func (j *Job) supervise(ctx context.Context, s report.Stack, f func(*stackRun) error) *stackRun {
	v := &stackRun{ctx: ctx, hasEnded: func() bool { return j.hasEnded(ctx) }, onBegin: func(cell string) { j.record.BeginCase(s, cell) }, updates: make(chan func()), updatesDone: make(chan struct{})}
	defer close(v.updatesDone)
	v.beginCase(report.OpenCase)
	done := make(chan error, 1)
	go func() { done <- f(v) }()
	timer := time.NewTimer(j.silenceLimit())
	defer timer.Stop()
	for end := ctx.Done(); ; {
		var err error
		select {
		case update := <-v.updates:
			update()
			if end != nil {
				timer.Reset(j.silenceLimit())
			}
			continue
		case <-end:
			end = nil
			timer.Reset(cancelGrace)
			continue
		case <-timer.C:
			if err = context.Cause(ctx); err == nil {
				v.lostReason = "hangs in " + v.runningCase
				err = fmt.Errorf("%w: it ignores its deadline", conform.ErrHung)
			}
		case err = <-done:
		}
		// The running case fails with the error.
		if err != nil {
			v.LastCase = v.lastCase
			if v.runningCase != "" {
				v.endCase(worker.EventOf(err))
			}
		}
		return v
	}
}

// update executes f in the goroutine of supervise.
func (v *stackRun) update(f func()) {
	select {
	case v.updates <- f:
	case <-v.updatesDone:
	}
}

// Begin implements worker.CaseRecorder.
func (v *stackRun) Begin(cell string) { v.update(func() { v.beginCase(cell) }) }

// Progress implements worker.CaseRecorder.
func (v *stackRun) Progress(points ...report.Point) {
	v.update(func() { v.casePoints = append(v.casePoints, points...) })
}

// End implements worker.CaseRecorder.
func (v *stackRun) End(e worker.Event) { v.update(func() { v.endCase(e) }) }

// markLost sets the reason why the rank cannot continue.
func (v *stackRun) markLost(lost string) { v.update(func() { v.lostReason = lost }) }

func (v *stackRun) beginCase(cell string) {
	if v.runningCase == cell {
		return
	}
	v.runningCase, v.lastCase, v.beganAt, v.casePoints = cell, cell, time.Now(), nil
	v.onBegin(cell)
}

// endCase logs the outcome of the running case. After an interrupt only passed cases have one. After the loss of a
// rank the reason names that.
func (v *stackRun) endCase(e worker.Event) {
	if e.Status != report.Pass && v.hasEnded() {
		why := context.Cause(v.ctx)
		if !isReported(why) {
			return
		}
		if e.Status.Bad() && !strings.Contains(e.Reason, why.Error()) {
			e.Reason = fmt.Sprintf("%v: %s", why, e.Reason)
		}
	}
	e.Points = append(v.casePoints, e.Points...)
	e.Case, e.Seconds, e.Reason = v.runningCase, time.Since(v.beganAt).Seconds(), truncateReason(e.Reason)
	v.Events = append(v.Events, e)
	v.runningCase = ""
}

// failureReason returns the reason of the first case that did not pass, or "".
func (v *stackRun) failureReason() string {
	for _, e := range v.Events {
		if e.Status != report.Pass {
			return e.Reason
		}
	}
	return ""
}
