package assembly

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
)

// Messages need no launcher, but without one nobody says when a process ends: whoever waits
// for one that does would wait for ever. So a process that has lost its launcher gives up
// all others, after a time in which it may end by itself, as it mostly does in a job that
// ends as a whole.

// serverLost begins that time. upcalls is locked.
func (a *Assembly) serverLost(reason string) {
	u := &a.upcalls
	if u.lost != nil {
		return
	}
	at := time.Now().Format(time.TimeOnly)
	u.lost = &framework.TransportError{
		Component: "bootstrap", Op: "send notes to other processes",
		Err: fmt.Errorf("the launcher has been gone since %s (%s); start the job again", at, reason),
	}
	if a.boot.OnLoss == core.LossContinue {
		a.env.Logger.Warn("the launcher is gone; this process continues, and will not hear when others end (bootstrap.on_loss=continue)", "reason", reason)
		return
	}
	a.env.Logger.Warn("the launcher is gone; communication with other processes ends after bootstrap.timeout (bootstrap.on_loss=continue keeps it going)",
		"timeout", a.boot.Timeout, "reason", reason)
	err := &framework.TransportError{
		Component: "bootstrap", Op: "hear of other processes",
		Err: fmt.Errorf("the launcher has been gone since %s (%s), so nothing reports when a process ends; bootstrap.on_loss=continue continues without it",
			at, reason),
	}
	u.running.Go(func() {
		select {
		case <-time.After(a.boot.Timeout):
			a.isolate(err)
		case <-u.stop:
		}
	})
}

// reportedDead isolates this process after a report of its death. Other processes drop its messages. upcalls is locked.
func (a *Assembly) reportedDead(reason string) {
	err := fmt.Errorf("%w: %s, which is this process, was reported dead: %s; end it, because the job continues without it",
		framework.ErrProcFailed, a.env.Identity.Proc, reason)
	if a.process == nil {
		a.env.Logger.Error("this process was reported dead; its communication has ended", "reason", reason)
	}
	a.isolateLocked(err)
}

// isolate ends all exchange with other processes, now and later, with err.
func (a *Assembly) isolate(err error) {
	defer func() {
		for _, s := range a.Streams() {
			s.isolate(err)
		}
	}()
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	if !u.closing {
		a.isolateLocked(err)
	}
}

// isolateLocked is isolate with upcalls locked.
func (a *Assembly) isolateLocked(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isolated = err
	for _, cancel := range a.constructs.cancel {
		cancel(err)
	}
	a.upcalls.isIsolated = true
	for life, known := range a.known.records() {
		if !a.dead.has(life) && !known.hasEnded {
			a.passes(news{peer: life, gone: err})
		}
	}
	for life := range a.known.lists() {
		if life != a.env.Self && !a.dead.has(life) {
			a.passes(news{peer: life, gone: err})
		}
	}
}
