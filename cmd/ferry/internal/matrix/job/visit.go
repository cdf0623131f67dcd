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
const obeys = time.Second

// An account is all that one rank says of a stack.
type account struct {
	Said []worker.Event `json:"said"`
	// Ended is the case after which the rank left others out; "" if it did not.
	Ended string `json:"ended,omitempty"`
}

// A visit is one rank's time with a stack. It is a worker.Scribe, whose methods may be
// called after its end: they do nothing then.
type visit struct {
	account
	lost string // why the rank can do nothing more

	ctx     context.Context
	cut     func() bool       // the run is over before its time
	watch   func(cell string) // is told of what begins
	running string
	last    string // that began
	began   time.Time
	steps   chan func() // what begins and ends, for the goroutine of Job.visit
	over    chan struct{}
}

// visit calls f, which begins with report.OpenCase. When nothing is heard of it for
// too long the rank is lost: f still runs, and holds the transport.
func (j *Job) visit(ctx context.Context, s report.Stack, f func(*visit) error) *visit {
	v := &visit{ctx: ctx, cut: func() bool { return j.over(ctx) }, watch: func(cell string) { j.record.Running(s, cell) }, steps: make(chan func()), over: make(chan struct{})}
	defer close(v.over)
	v.begin(report.OpenCase)
	done := make(chan error, 1)
	go func() { done <- f(v) }()
	timer := time.NewTimer(j.hangs())
	defer timer.Stop()
	for ended := ctx.Done(); ; {
		var err error
		select {
		case step := <-v.steps:
			step()
			if ended != nil {
				timer.Reset(j.hangs())
			}
			continue
		case <-ended: // it obeys soon, or never
			ended = nil
			timer.Reset(obeys)
			continue
		case <-timer.C:
			if err = context.Cause(ctx); err == nil {
				v.lost = "hangs in " + v.running
				err = fmt.Errorf("%w: it ignores its deadline", conform.ErrHung)
			}
		case err = <-done:
		}
		// What ended it before its time is the outcome of the case that runs.
		if err != nil {
			v.Ended = v.last
			if v.running != "" {
				v.end(worker.Ended(err))
			}
		}
		return v
	}
}

// step has the goroutine of Job.visit do something.
func (v *visit) step(f func()) {
	select {
	case v.steps <- f:
	case <-v.over:
	}
}

// Begin implements worker.Scribe.
func (v *visit) Begin(cell string) { v.step(func() { v.begin(cell) }) }

// End implements worker.Scribe.
func (v *visit) End(e worker.Event) { v.step(func() { v.end(e) }) }

// give says why the rank can do nothing more.
func (v *visit) give(lost string) { v.step(func() { v.lost = lost }) }

func (v *visit) begin(cell string) {
	if v.running == cell {
		return
	}
	v.running, v.last, v.began = cell, cell, time.Now()
	v.watch(cell)
}

// end writes down what became of a case. One that did not pass because the run was
// interrupted has no outcome; one in which a rank was lost has failed, for that reason.
func (v *visit) end(e worker.Event) {
	if e.Status != report.Pass && v.cut() {
		why := context.Cause(v.ctx)
		if !isTold(why) {
			return
		}
		if e.Status.Bad() && !strings.Contains(e.Reason, why.Error()) {
			e.Reason = fmt.Sprintf("%v: %s", why, e.Reason)
		}
	}
	e.Case, e.Seconds, e.Reason = v.running, time.Since(v.began).Seconds(), shorten(e.Reason)
	v.Said = append(v.Said, e)
	v.running = ""
}

// failed is what did not work, in words.
func (v *visit) failed() string {
	for _, e := range v.Said {
		if e.Status != report.Pass {
			return e.Reason
		}
	}
	return ""
}
