package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// A run that ends before its time ends in each rank at another moment: a launcher's
// signal, or the news of a death, reaches some first. They leave, and others see their
// operations with these fail. So nobody leaves before it has said why, under overKey, and
// whoever sees something fail asks there first.

// told is an error that ended the run, and that rank 0 knows of, or the launcher.
type reportedError struct{ error }

func (t reportedError) Unwrap() error { return t.error }

func isReported(err error) bool {
	_, ok := errors.AsType[reportedError](err)
	return ok
}

// interrupted is an error that says which interrupt has ended the run: this rank's, or
// another one's. What fails from then on is nobody's fault.
type interruptError struct{ error }

func (i interruptError) Unwrap() error { return i.error }

func isInterrupt(err error) bool {
	_, ok := errors.AsType[interruptError](err)
	return ok
}

// overKey is the name under which the first rank that leaves before the end says why.
const endReasonKey = "ferry.matrix.over"

// An ending is what it says.
type endReason struct {
	Text        string `json:"why"`
	IsInterrupt bool   `json:"interrupted"`
}

// answers is how long the launcher may take to answer a question.
const lookupTimeout = 10 * time.Second

// endsOfInterrupt are the reasons of the ends of interrupted ranks that have announced no ending. The signal came before the
// run, or was a second one. The exit statuses are those of exit.Signals.
var interruptStatuses = []string{
	"exit status 129", "exit status 130", "exit status 131", "exit status 143",
	"signal: interrupt", "signal: terminated", "signal: hangup",
}

// attend returns a context that ends when a rank does: there is nothing to wait for
// any more, and the case that runs is the one to name. It ends, too, when ctx does. In
// both cases others can know of it before. The caller calls stop.
func (j *Job) watchForEnd(ctx context.Context) (_ context.Context, stop func()) {
	alive, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	j.cancelRun = cancel
	end := func(why, others error) {
		if j.isLeaving.CompareAndSwap(false, true) { // what comes first is the reason of the rest
			go func() {
				j.publishEndReason(alive, others)
				cancel(why)
			}()
		}
	}
	if events, ok := framework.As[bootstrap.EventSource](j.client); ok {
		w := &watchedClient{j.client, events, func(e bootstrap.Event) {
			if rank := slices.Index(j.group, e.Proc); e.Kind == bootstrap.ProcDied && rank >= 0 {
				why := j.rankEndError(rank, e.Reason)
				end(why, why)
			}
		}}
		j.client = w
		w.OnEvent(nil)
	}
	silence := context.AfterFunc(ctx, func() {
		why := context.Cause(ctx)
		end(interruptError{why}, interruptError{fmt.Errorf("interrupted: %s: %w", j.describeRank(j.rank), why)})
	})
	return alive, func() { silence(); cancel(nil) }
}

// ended is why the run is over when a rank has ended.
func (j *Job) rankEndError(rank int, reason string) error {
	err := fmt.Errorf("%s has ended (%s)", j.describeRank(rank), reason)
	if slices.Contains(interruptStatuses, reason) {
		return interruptError{fmt.Errorf("interrupted: %w", err)}
	}
	return reportedError{err}
}

// announce tells others why this rank leaves, if the launcher has a directory and listens.
func (j *Job) publishEndReason(ctx context.Context, why error) {
	d, ok := framework.As[bootstrap.Directory](j.client)
	text, err := json.Marshal(endReason{truncateReason(why.Error()), isInterrupt(why)})
	if ok && err == nil {
		ctx, cancel := context.WithTimeout(ctx, cancelGrace)
		defer cancel()
		_ = d.Publish(ctx, endReasonKey, text) // another one may have been the first
	}
}

// over reports whether the run has ended before its time, also where that is not yet
// known here, but to another rank. Its context has ended then, and others can know.
func (j *Job) hasEnded(alive context.Context) bool {
	if j.isLeaving.Load() {
		<-alive.Done()
	}
	d, ok := framework.As[bootstrap.Directory](j.client)
	if ok && alive.Err() == nil {
		ctx, cancel := context.WithTimeout(alive, lookupTimeout)
		defer cancel()
		var e endReason
		text, found, err := d.Lookup(ctx, endReasonKey, false)
		switch {
		case err != nil || !found || json.Unmarshal(text, &e) != nil: // nobody has left
		case e.IsInterrupt:
			j.cancelRun(interruptError{errors.New(e.Text)})
		default:
			j.cancelRun(reportedError{errors.New(e.Text)})
		}
	}
	return alive.Err() != nil
}

// await waits for the end of a context, for some time.
func waitAtMost(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// A watched client has its job hear what the sessions over it hear.
type watchedClient struct {
	bootstrap.Client
	bootstrap.EventSource
	notify func(bootstrap.Event)
}

// Unwrap returns the client.
func (w *watchedClient) Unwrap() any { return w.Client }

// OnEvent implements bootstrap.EventSource.
func (w *watchedClient) OnEvent(f func(bootstrap.Event)) {
	w.EventSource.OnEvent(func(e bootstrap.Event) {
		w.notify(e)
		if f != nil {
			f(e)
		}
	})
}
