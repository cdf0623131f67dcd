package matrix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// A finding is what one rank says of one case.
type finding struct {
	Case    string         `json:"case"`
	Status  report.Status  `json:"status"`
	Reason  string         `json:"reason,omitempty"`
	Seconds float64        `json:"seconds"`
	Points  []report.Point `json:"points,omitempty"`
	Device  string         `json:"device,omitempty"` // of OpenCase
	Mode    string         `json:"mode,omitempty"`
	// Others are ranks in which the case failed, as far as this one knows.
	Others []int `json:"others,omitempty"`
}

// An account is all that one rank says of a stack.
type account struct {
	Findings []finding `json:"findings"`
	// Ended is the case after which the rank left others out; "" if it did not.
	Ended string `json:"ended,omitempty"`
}

// found is the finding of what ended with err.
func found(err error) finding {
	switch {
	case err == nil:
		return finding{Status: report.Pass}
	case errors.Is(err, conform.ErrHung):
		return finding{Status: report.Timeout, Reason: err.Error()}
	}
	return finding{Status: report.Fail, Reason: err.Error()}
}

// judged is the finding of a conformance case.
func judged(r conform.Result) finding {
	f := found(r.Err)
	f.Others = r.Ranks
	return f
}

// A visit is one rank's time with a stack. Its methods may be called after its end:
// they do nothing then.
type visit struct {
	ctx   context.Context
	news  chan struct{}     // something has begun or ended
	watch func(cell string) // is told of what begins, or nil

	mu      sync.Mutex // guards what follows
	over    bool
	running string
	last    string // that began
	began   time.Time
	account account
	lost    string // why the rank can do nothing more
}

// visit calls f, which begins with the given case. When nothing is heard of it for
// too long the rank is lost: f still runs, and holds the transport.
func (j *Job) visit(ctx context.Context, s report.Stack, first string, f func(*visit) error) *visit {
	v := &visit{ctx: ctx, news: make(chan struct{}, 1)}
	if j.rank == 0 {
		v.watch = func(cell string) { j.running(s, cell) }
	}
	v.begin(first)
	done := make(chan error, 1)
	go func() { done <- f(v) }()
	timer := time.NewTimer(j.hangs())
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			v.close(err)
			return v
		case <-v.news:
			timer.Reset(j.hangs())
		case <-ctx.Done():
			// It obeys soon, or never.
			select {
			case err := <-done:
				v.close(err)
			case <-time.After(drainGrace):
				v.close(context.Cause(ctx))
			}
			return v
		case <-timer.C:
			v.mu.Lock()
			cell := v.running
			v.mu.Unlock()
			v.give("hangs in " + cell)
			v.close(fmt.Errorf("%w: it obeys no deadline", conform.ErrHung))
			return v
		}
	}
}

func (v *visit) begin(cell string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over || v.running == cell {
		return
	}
	v.running, v.last, v.began = cell, cell, time.Now()
	if v.watch != nil {
		v.watch(cell)
	}
	tell(v.news)
}

// end says what became of the case that runs. One that did not pass because the run
// was interrupted has no outcome; one in which a rank was lost has failed.
func (v *visit) end(f finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over || v.ctx.Err() != nil && f.Status != report.Pass && !isTold(context.Cause(v.ctx)) {
		return
	}
	f.Case, f.Seconds, f.Reason = v.running, time.Since(v.began).Seconds(), shorten(f.Reason)
	v.account.Findings = append(v.account.Findings, f)
	v.running = ""
	tell(v.news)
}

// give says why the rank can do nothing more.
func (v *visit) give(lost string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.over && v.lost == "" {
		v.lost = lost
	}
}

// close ends the visit. err is what ended it before its time, if anything did: the
// outcome of the case that runs, if that has none.
func (v *visit) close(err error) {
	if err != nil {
		v.mu.Lock()
		running := v.running
		v.account.Ended = v.last
		v.mu.Unlock()
		if running != "" {
			v.end(found(err))
		}
	}
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
}

// failed is what did not work, in words.
func (v *visit) failed() string {
	for _, f := range v.account.Findings {
		if f.Status != report.Pass {
			return f.Reason
		}
	}
	return ""
}
