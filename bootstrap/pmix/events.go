package pmix

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// watchedCodes are the registered events. Each code is registered by itself, because a handler for
// all codes does not receive all events. Open MPI's mpirun sends none for a death, and Slurm ends
// the step. The server of our tests sends them. Sending events wedges mpirun and ends a step of
// Slurm, so this package sends none.
var watchedCodes = []pmixc.Status{
	pmixc.LostConnection, pmixc.ProcAborted, pmixc.ProcUnsynced, pmixc.ProcKilled, pmixc.ProcExitNonzero,
}

// registerEvents registers for events. A refusal means that the server has no events, and is no
// error. A server that does not answer is one.
func (p *process) registerEvents(ctx context.Context) error {
	for _, code := range watchedCodes {
		var refused *pmixc.Error
		if err := p.lib.Watch(ctx, code); err != nil && !errors.As(err, &refused) {
			return fmt.Errorf("event %d: %w", code, err)
		}
	}
	return nil
}

// deliverEvents delivers the queued events to the watcher.
func (p *process) deliverEvents() {
	p.watchMu.Lock()
	defer p.watchMu.Unlock()
	for {
		e, ok := p.lib.NextEvent()
		if !ok {
			return
		}
		p.mu.Lock()
		event, ok := p.recordEvent(e)
		p.mu.Unlock()
		if ok && p.watcher != nil {
			p.watcher(event)
		}
	}
}

// recordEvent records an event, and converts it. ok is false if it is not new, or of no process of
// the job. p.mu is held.
func (p *process) recordEvent(e pmixc.Event) (event bootstrap.Event, ok bool) {
	proc, isOfJob := p.jobProc(e.Proc)
	isOfOtherNamespace := !isOfJob && e.Proc.Namespace != p.self.Namespace
	switch {
	case e.Code != pmixc.LostConnection && isOfJob:
		if _, known := p.failures[proc]; !known {
			p.failures[proc] = fmt.Sprintf("the launcher reports %s (%d)", p.lib.StatusText(e.Code), e.Code)
			return p.deathEvent(proc), true
		}
	case e.Code == pmixc.LostConnection && (isOfOtherNamespace || e.Proc == p.self) && !p.isServerLost:
		// The source is this process or its server, which has a namespace of its own.
		p.isServerLost = true
		return serverLost(), true
	case e.Code != pmixc.LostConnection && isOfOtherNamespace && p.pendingSpawns > 0 && len(p.unclaimedDeaths) < maxUnclaimedDeaths:
		p.unclaimedDeaths = append(p.unclaimedDeaths, e)
	}
	return event, false
}

// maxUnclaimedDeaths limits the memory for deaths of unknown processes.
const maxUnclaimedDeaths = 1 << 12

func (p *process) deathEvent(proc framework.Proc) bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: proc, Reason: p.failures[proc]}
}

func serverLost() bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "the connection to " + serverName() + " is lost"}
}

// Watch sets the callback for past and future events, which is called from a goroutine until
// Watch(nil) has returned. The process has one callback, that of the last call.
func (l *launcher) Watch(f func(bootstrap.Event)) {
	l.stopWatching()
	if f == nil {
		return
	}
	bell, err := l.lib.EventFile()
	if err != nil { // f is not called then. Later calls still record events.
		return
	}
	ended := make(chan struct{})
	l.mu.Lock()
	l.stopWatch = func() {
		bell.Close()
		<-ended
	}
	l.mu.Unlock()
	go func() {
		defer close(ended)
		l.setWatcher(f)
		for b := make([]byte, 8); ; {
			l.deliverEvents()
			if _, err := bell.Read(b); err != nil {
				return
			}
		}
	}()
}

// setWatcher makes f the watcher, and delivers past events to it.
func (p *process) setWatcher(f func(bootstrap.Event)) {
	p.watchMu.Lock()
	defer p.watchMu.Unlock()
	p.mu.Lock()
	var before []bootstrap.Event
	for proc := range p.failures {
		before = append(before, p.deathEvent(proc))
	}
	if p.isServerLost {
		before = append(before, serverLost())
	}
	p.mu.Unlock()
	for _, e := range before {
		f(e)
	}
	p.watcher = f
}

// stopWatching ends the effect of Watch. Afterwards f is not called.
func (p *process) stopWatching() {
	p.mu.Lock()
	stop := p.stopWatch
	p.stopWatch = nil
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	p.watchMu.Lock()
	p.watcher = nil
	p.watchMu.Unlock()
}
