package assembly

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
)

// Messages need no launcher, but without one no failure of a process is reported, and waits for a failed process do not end. A process that
// has lost its launcher therefore disconnects all others after bootstrap.timeout. Most jobs end as a whole before that.

// launcherLost starts the timeout. upcalls is locked.
func (a *Assembly) launcherLost(reason string) {
	u := &a.upcalls
	if u.launcherLossErr != nil {
		return
	}
	at := time.Now().Format(time.TimeOnly)
	u.launcherLossErr = &framework.TransportError{
		Component: "bootstrap", Op: "send notes to other processes",
		Err: fmt.Errorf("the launcher has been gone since %s (%s); start the job again", at, reason),
	}
	if a.bootstrapParams.OnLoss == core.LossContinue {
		a.env.Logger.Warn("the launcher is gone; this process continues, and failures of other processes are not reported (bootstrap.on_loss=continue)", "reason", reason)
		return
	}
	a.env.Logger.Warn("the launcher is gone; communication with other processes ends after bootstrap.timeout (bootstrap.on_loss=continue prevents that)",
		"timeout", a.bootstrapParams.Timeout, "reason", reason)
	err := &framework.TransportError{
		Component: "bootstrap", Op: "receive events of other processes",
		Err: fmt.Errorf("the launcher has been gone since %s (%s), so nothing reports when a process ends; bootstrap.on_loss=continue continues without it",
			at, reason),
	}
	u.runningGoroutines.Go(func() {
		select {
		case <-time.After(a.bootstrapParams.Timeout):
			a.isolate(err)
		case <-u.closeSignal:
		}
	})
}

// reportedDead isolates this process after a report of its death. Other processes drop its messages. upcalls is locked.
func (a *Assembly) reportedDead(reason string) {
	err := fmt.Errorf("%w: %s, which is this process, was reported dead: %s; end it, because the job continues without it",
		framework.ErrProcFailed, a.env.Identity.Proc, reason)
	if a.ownerProcess == nil {
		a.env.Logger.Error("this process was reported dead; its communication has ended", "reason", reason)
	}
	a.isolateLocked(err)
}

// isolate ends all present and future exchange with other processes with err.
func (a *Assembly) isolate(err error) {
	defer func() {
		for _, s := range a.Streams() {
			s.isolate(err)
		}
	}()
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	if !u.isClosing {
		a.isolateLocked(err)
	}
}

// isolateLocked is isolate with upcalls locked.
func (a *Assembly) isolateLocked(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isolationErr = err
	for _, cancel := range a.constructs.cancelByNumber {
		cancel(err)
	}
	a.upcalls.isIsolated = true
	for incarnation, known := range a.peers.records() {
		if !a.failedIncarnations.has(incarnation) && !known.hasEnded {
			a.enqueue(upcall{peerEvent: framework.UnreachableEvent(incarnation, err)})
		}
	}
	for incarnation := range a.peers.tableOnlyIncarnations() {
		if incarnation != a.env.Self && !a.failedIncarnations.has(incarnation) {
			a.enqueue(upcall{peerEvent: framework.UnreachableEvent(incarnation, err)})
		}
	}
}
