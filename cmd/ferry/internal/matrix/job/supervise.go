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

// obeys is how long a case may take to end when the run is over.
const cancelGrace = time.Second

// An account is all that one rank says of a stack.
type stackLog struct {
	Events []worker.Event `json:"said"`
	// Ended is the case after which the rank left others out; "" if it did not.
	LastCase string `json:"ended,omitempty"`
}

// A visit is one rank's time with a stack. It is a worker.Scribe, whose methods may be
// called after its end: they do nothing then.
type stackRun struct {
	stackLog
	lostReason string // why the rank can do nothing more

	ctx         context.Context
	hasEnded    func() bool       // the run is over before its time
	onBegin     func(cell string) // is told of what begins
	runningCase string
	lastCase    string // that began
	beganAt     time.Time
	updates     chan func() // what begins and ends, for the goroutine of Job.visit
	finished    chan struct{}
}

// visit calls f, which begins with report.OpenCase. When nothing is heard of it for
// too long the rank is lost: f still runs, and holds the transport.
func (j *Job) supervise(ctx context.Context, s report.Stack, f func(*stackRun) error) *stackRun {
	v := &stackRun{ctx: ctx, hasEnded: func() bool { return j.hasEnded(ctx) }, onBegin: func(cell string) { j.record.Running(s, cell) }, updates: make(chan func()), finished: make(chan struct{})}
	defer close(v.finished)
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
		case <-end: // it obeys soon, or never
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
		// What ended it before its time is the outcome of the case that runs.
		if err != nil {
			v.LastCase = v.lastCase
			if v.runningCase != "" {
				v.endCase(worker.Ended(err))
			}
		}
		return v
	}
}

// step has the goroutine of Job.visit do something.
func (v *stackRun) update(f func()) {
	select {
	case v.updates <- f:
	case <-v.finished:
	}
}

// Begin implements worker.Scribe.
func (v *stackRun) Begin(cell string) { v.update(func() { v.beginCase(cell) }) }

// End implements worker.Scribe.
func (v *stackRun) End(e worker.Event) { v.update(func() { v.endCase(e) }) }

// give says why the rank can do nothing more.
func (v *stackRun) markLost(lost string) { v.update(func() { v.lostReason = lost }) }

func (v *stackRun) beginCase(cell string) {
	if v.runningCase == cell {
		return
	}
	v.runningCase, v.lastCase, v.beganAt = cell, cell, time.Now()
	v.onBegin(cell)
}

// end writes down what became of a case. One that did not pass because the run was
// interrupted has no outcome; one in which a rank was lost has failed, for that reason.
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
	e.Case, e.Seconds, e.Reason = v.runningCase, time.Since(v.beganAt).Seconds(), truncateReason(e.Reason)
	v.Events = append(v.Events, e)
	v.runningCase = ""
}

// failed is what did not work, in words.
func (v *stackRun) failureReason() string {
	for _, e := range v.Events {
		if e.Status != report.Pass {
			return e.Reason
		}
	}
	return ""
}
