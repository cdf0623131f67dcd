package job

import (
	"context"
	"fmt"
	"sync"
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

// A visit is one rank's time with a stack. It is a worker.Scribe, whose methods may be called after its end:
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

// visit calls f, which begins with report.OpenCase. When nothing is heard of it for
// too long the rank is lost: f still runs, and holds the transport.
func (j *Job) visit(ctx context.Context, s report.Stack, f func(*visit) error) *visit {
	v := &visit{ctx: ctx, news: make(chan struct{}, 1)}
	if j.rank == 0 {
		v.watch = func(cell string) { j.record.Running(s, cell) }
	}
	v.Begin(report.OpenCase)
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
			case <-time.After(obeys):
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

// Begin implements worker.Scribe.
func (v *visit) Begin(cell string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over || v.running == cell {
		return
	}
	v.running, v.last, v.began = cell, cell, time.Now()
	if v.watch != nil {
		v.watch(cell)
	}
	v.tell()
}

// End implements worker.Scribe. A case that did not pass because the run was
// interrupted has no outcome; one in which a rank was lost has failed.
func (v *visit) End(e worker.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over || v.ctx.Err() != nil && e.Status != report.Pass && !isTold(context.Cause(v.ctx)) {
		return
	}
	e.Case, e.Seconds, e.Reason = v.running, time.Since(v.began).Seconds(), shorten(e.Reason)
	v.account.Said = append(v.account.Said, e)
	v.running = ""
	v.tell()
}

// tell says that there is news.
func (v *visit) tell() {
	select {
	case v.news <- struct{}{}:
	default:
	}
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
			v.End(worker.Ended(err))
		}
	}
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
}

// failed is what did not work, in words.
func (v *visit) failed() string {
	for _, e := range v.account.Said {
		if e.Status != report.Pass {
			return e.Reason
		}
	}
	return ""
}
