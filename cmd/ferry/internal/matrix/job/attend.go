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
type told struct{ error }

func (t told) Unwrap() error { return t.error }

func isTold(err error) bool {
	_, ok := errors.AsType[told](err)
	return ok
}

// interrupted is an error that says which interrupt has ended the run: this rank's, or
// another one's. What fails from then on is nobody's fault.
type interrupted struct{ error }

func (i interrupted) Unwrap() error { return i.error }

func isInterrupted(err error) bool {
	_, ok := errors.AsType[interrupted](err)
	return ok
}

// overKey is the name under which the first rank that leaves before the end says why.
const overKey = "ferry.matrix.over"

// An ending is what it says.
type ending struct {
	Why         string `json:"why"`
	Interrupted bool   `json:"interrupted"`
}

// answers is how long the launcher may take to answer a question.
const answers = 10 * time.Second

// endsOfInterrupt are the reasons of the ends of interrupted ranks that have announced no ending. The signal came before the
// run, or was a second one. The exit statuses are those of exit.Signals.
var endsOfInterrupt = []string{
	"exit status 129", "exit status 130", "exit status 131", "exit status 143",
	"signal: interrupt", "signal: terminated", "signal: hangup",
}

// attend returns a context that ends when a rank does: there is nothing to wait for
// any more, and the case that runs is the one to name. It ends, too, when ctx does. In
// both cases others can know of it before. The caller calls stop.
func (j *Job) attend(ctx context.Context) (_ context.Context, stop func()) {
	alive, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	j.stop = cancel
	end := func(why, others error) {
		if j.leaving.CompareAndSwap(false, true) { // what comes first is the reason of the rest
			go func() {
				j.announce(alive, others)
				cancel(why)
			}()
		}
	}
	if events, ok := framework.As[bootstrap.EventSource](j.client); ok {
		w := &watched{j.client, events, func(e bootstrap.Event) {
			if rank := slices.Index(j.group, e.Proc); e.Kind == bootstrap.ProcDied && rank >= 0 {
				why := j.ended(rank, e.Reason)
				end(why, why)
			}
		}}
		j.client = w
		w.OnEvent(nil)
	}
	silence := context.AfterFunc(ctx, func() {
		why := context.Cause(ctx)
		end(interrupted{why}, interrupted{fmt.Errorf("interrupted: %s: %w", j.name(j.rank), why)})
	})
	return alive, func() { silence(); cancel(nil) }
}

// ended is why the run is over when a rank has ended.
func (j *Job) ended(rank int, reason string) error {
	err := fmt.Errorf("%s has ended (%s)", j.name(rank), reason)
	if slices.Contains(endsOfInterrupt, reason) {
		return interrupted{fmt.Errorf("interrupted: %w", err)}
	}
	return told{err}
}

// announce tells others why this rank leaves, if the launcher has a directory and listens.
func (j *Job) announce(ctx context.Context, why error) {
	d, ok := framework.As[bootstrap.Directory](j.client)
	text, err := json.Marshal(ending{shorten(why.Error()), isInterrupted(why)})
	if ok && err == nil {
		ctx, cancel := context.WithTimeout(ctx, obeys)
		defer cancel()
		_ = d.Publish(ctx, overKey, text) // another one may have been the first
	}
}

// over reports whether the run has ended before its time, also where that is not yet
// known here, but to another rank. Its context has ended then, and others can know.
func (j *Job) over(alive context.Context) bool {
	if j.leaving.Load() {
		<-alive.Done()
	}
	d, ok := framework.As[bootstrap.Directory](j.client)
	if ok && alive.Err() == nil {
		ctx, cancel := context.WithTimeout(alive, answers)
		defer cancel()
		var e ending
		text, found, err := d.Lookup(ctx, overKey, false)
		switch {
		case err != nil || !found || json.Unmarshal(text, &e) != nil: // nobody has left
		case e.Interrupted:
			j.stop(interrupted{errors.New(e.Why)})
		default:
			j.stop(told{errors.New(e.Why)})
		}
	}
	return alive.Err() != nil
}

// await waits for the end of a context, for some time.
func await(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// A watched client has its job hear what the sessions over it hear.
type watched struct {
	bootstrap.Client
	bootstrap.EventSource
	hear func(bootstrap.Event)
}

// Unwrap returns the client.
func (w *watched) Unwrap() any { return w.Client }

// OnEvent implements bootstrap.EventSource.
func (w *watched) OnEvent(f func(bootstrap.Event)) {
	w.EventSource.OnEvent(func(e bootstrap.Event) {
		w.hear(e)
		if f != nil {
			f(e)
		}
	})
}
