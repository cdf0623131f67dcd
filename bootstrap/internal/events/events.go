// Package events delivers a bootstrap client's events as bootstrap.EventSource
// promises it.
package events

import (
	"slices"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
)

// A Queue keeps what a later OnEvent must still hear, and delivers one event at
// a time, on a goroutine that lives while there is something to deliver.
type Queue struct {
	// Spawn starts a goroutine that Close of the client waits for. Set it before use.
	Spawn func(func())

	mu      sync.Mutex
	f       func(bootstrap.Event)
	history []bootstrap.Event // deaths, and the loss of the server
	queue   []bootstrap.Event
	running bool
	stopped bool
}

// Add takes an event in.
func (e *Queue) Add(ev bootstrap.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.Kind == bootstrap.ProcDied || ev.Kind == bootstrap.ServerLost {
		e.history = append(e.history, ev)
	}
	if e.f != nil {
		e.queue = append(e.queue, ev)
	}
	e.startLocked()
}

// Set makes f the receiver, of the past first.
func (e *Queue) Set(f func(bootstrap.Event)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.f, e.queue = f, nil
	if f != nil {
		e.queue = slices.Clone(e.history)
	}
	e.startLocked()
}

func (e *Queue) startLocked() {
	if e.running || e.stopped || len(e.queue) == 0 {
		return
	}
	e.running = true
	e.Spawn(e.run)
}

func (e *Queue) run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 {
		f, ev := e.f, e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		f(ev)
		e.mu.Lock()
	}
	e.running = false
}

// Stop ends delivery; the goroutine may still be in its last call.
func (e *Queue) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped, e.queue = true, nil
}
