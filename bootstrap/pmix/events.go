package pmix

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// watched are the events that are asked for: each code by itself, because a handler for
// all of them does not get all. Open MPI's mpirun sends none of a death; Slurm ends the
// step instead; the server of our tests does. We never send any: that wedges mpirun, and
// ends a step of Slurm's.
var watchedCodes = []pmixc.Status{
	pmixc.LostConnection, pmixc.ProcAborted, pmixc.ProcUnsynced, pmixc.ProcKilled, pmixc.ProcExitNonzero,
}

// watch asks for news. A server that refuses has none to give, which is not an error; one that
// does not answer is.
func (p *process) registerEvents(ctx context.Context) error {
	for _, code := range watchedCodes {
		var refused *pmixc.Error
		if err := p.lib.Watch(ctx, code); err != nil && !errors.As(err, &refused) {
			return fmt.Errorf("event %d: %w", code, err)
		}
	}
	return nil
}

// news takes what has come, and tells the watcher.
func (p *process) deliverEvents() {
	p.watchMu.Lock()
	defer p.watchMu.Unlock()
	for {
		e, ok := p.lib.NextEvent()
		if !ok {
			return
		}
		p.mu.Lock()
		said, ok := p.recordEvent(e)
		p.mu.Unlock()
		if ok && p.watcher != nil {
			p.watcher(said)
		}
	}
}

// take notes an event, and makes one of bootstrap's of it; ok is false if it says nothing
// new.
func (p *process) recordEvent(e pmixc.Event) (said bootstrap.Event, ok bool) {
	who := framework.Proc{Namespace: e.Proc.Namespace, Rank: e.Proc.Rank}
	stranger := who.Namespace != p.id.Proc.Namespace
	switch {
	case e.Code != pmixc.LostConnection && who.Namespace != "":
		if _, known := p.failures[who]; !known {
			p.failures[who] = fmt.Sprintf("the launcher says %s (%d)", p.lib.StatusText(e.Code), e.Code)
			return p.deathEvent(who), true
		}
	case e.Code == pmixc.LostConnection && (stranger || who == p.id.Proc) && !p.isServerLost: // our own connection
		p.isServerLost = true
		return serverLost(), true
	}
	return said, false
}

func (p *process) deathEvent(who framework.Proc) bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.ProcDied, Proc: who, Reason: p.failures[who]}
}

func serverLost() bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "the connection to " + serverName() + " is lost"}
}

// Watch has f called, from a goroutine, for what was heard and what will be, until
// Watch(nil) has returned. The process has one f, the last one that was given.
func (l *launcher) Watch(f func(bootstrap.Event)) {
	l.stopWatching()
	if f == nil {
		return
	}
	bell, err := l.lib.EventFile()
	if err != nil { // then news come when something else is asked for
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

// setWatcher makes f the watcher, and tells it what was heard before.
func (p *process) setWatcher(f func(bootstrap.Event)) {
	p.watchMu.Lock()
	defer p.watchMu.Unlock()
	p.mu.Lock()
	var before []bootstrap.Event
	for who := range p.failures {
		before = append(before, p.deathEvent(who))
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

// unwatch ends what Watch has begun. After it f is not called.
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
