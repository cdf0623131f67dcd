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

// Signals of a launcher and failure events reach the ranks at different times. A rank that leaves early breaks the
// operations of its peers. It therefore publishes its reason under endReasonKey first, and a rank whose operation fails
// looks the reason up before it blames a case.

// A reportedError has ended the run. The report of rank 0 or the launcher's output contains it.
type reportedError struct{ error }

func (t reportedError) Unwrap() error { return t.error }

func isReported(err error) bool {
	_, ok := errors.AsType[reportedError](err)
	return ok
}

// An interruptError names the interrupt that has ended the run, in this rank or in another one. Failures after it are
// not recorded.
type interruptError struct{ error }

func (i interruptError) Unwrap() error { return i.error }

func isInterrupt(err error) bool {
	_, ok := errors.AsType[interruptError](err)
	return ok
}

// endReasonKey is the key under which the first rank that leaves early publishes its reason.
const endReasonKey = "ferry.matrix.over"

// An endReason is the value of endReasonKey.
type endReason struct {
	Text        string `json:"why"`
	IsInterrupt bool   `json:"interrupted"`
}

// lookupTimeout limits a lookup in the launcher's directory.
const lookupTimeout = 10 * time.Second

// interruptStatuses are the exit reasons of interrupted ranks that have published no endReason, because of an
// interrupt before the run or a second one. The exit statuses are those of exit.Signals.
var interruptStatuses = []string{
	"exit status 129", "exit status 130", "exit status 131", "exit status 143",
	"signal: interrupt", "signal: terminated", "signal: hangup",
}

// watchForEnd returns a context that is canceled when another rank ends or ctx is canceled, after the reason has been
// published. The caller calls stop.
func (j *Job) watchForEnd(ctx context.Context) (_ context.Context, stop func()) {
	alive, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	j.cancelRun = cancel
	end := func(why, others error) {
		if j.isLeaving.CompareAndSwap(false, true) {
			go func() {
				j.publishEndReason(alive, others)
				cancel(why)
			}()
		}
	}
	if events, ok := framework.As[bootstrap.EventSource](j.client); ok {
		w := &watchedClient{j.client, events, func(e bootstrap.Event) {
			if rank := slices.Index(j.group, e.Proc); e.Kind == bootstrap.PeerFailed && rank >= 0 {
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

// rankEndError returns the error of a run in which a rank has ended.
func (j *Job) rankEndError(rank int, reason string) error {
	err := fmt.Errorf("%s has ended (%s)", j.describeRank(rank), reason)
	if slices.Contains(interruptStatuses, reason) {
		return interruptError{fmt.Errorf("interrupted: %w", err)}
	}
	return reportedError{err}
}

// publishEndReason publishes the reason of an early end, if the launcher has a directory.
func (j *Job) publishEndReason(ctx context.Context, why error) {
	d, ok := framework.As[bootstrap.Directory](j.client)
	text, err := json.Marshal(endReason{truncateReason(why.Error()), isInterrupt(why)})
	if ok && err == nil {
		ctx, cancel := context.WithTimeout(ctx, cancelGrace)
		defer cancel()
		_ = d.Publish(ctx, endReasonKey, text) // Fails if another rank was first.
	}
}

// hasEnded reports whether the run has ended early, here or in another rank. It blocks for at most lookupTimeout. If
// it returns true, alive is canceled and the reason is published.
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
		case err != nil || !found || json.Unmarshal(text, &e) != nil:
		case e.IsInterrupt:
			j.cancelRun(interruptError{errors.New(e.Text)})
		default:
			j.cancelRun(reportedError{errors.New(e.Text)})
		}
	}
	return alive.Err() != nil
}

// waitAtMost waits until ctx is canceled or d has passed.
func waitAtMost(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// A watchedClient forwards the events of its sessions to the job, too.
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
