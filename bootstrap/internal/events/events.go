// Package events delivers the events of a bootstrap client as bootstrap.EventSource specifies.
package events

import (
	"slices"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
)

// A Queue keeps deaths and the loss of the server for every later receiver, and revocations until
// there is a receiver. It delivers one event at a time, on a goroutine that exists while events are
// queued.
type Queue struct {
	// Spawn starts a goroutine that Close of the client waits for. Set it before use.
	Spawn func(func())

	mu       sync.Mutex
	receiver func(bootstrap.Event)
	// Deaths and the loss of the server.
	history   []bootstrap.Event
	queue     []bootstrap.Event
	isRunning bool
	isStopped bool
}

// Add queues an event.
func (e *Queue) Add(ev bootstrap.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.Kind == bootstrap.PeerFailed || ev.Kind == bootstrap.ServerLost {
		e.history = append(e.history, ev)
	}
	if e.receiver != nil || ev.Kind == bootstrap.CommRevoked {
		e.queue = append(e.queue, ev)
	}
	e.startLocked()
}

// Set changes the receiver, which first receives the history.
func (e *Queue) Set(f func(bootstrap.Event)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	undelivered := slices.DeleteFunc(e.queue, func(ev bootstrap.Event) bool { return ev.Kind != bootstrap.CommRevoked })
	e.receiver, e.queue = f, undelivered
	if f != nil {
		e.queue = slices.Concat(e.history, undelivered)
	}
	e.startLocked()
}

func (e *Queue) startLocked() {
	if e.isRunning || e.isStopped || e.receiver == nil || len(e.queue) == 0 {
		return
	}
	e.isRunning = true
	e.Spawn(e.run)
}

func (e *Queue) run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.receiver != nil && len(e.queue) > 0 {
		f, ev := e.receiver, e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		f(ev)
		e.mu.Lock()
	}
	e.isRunning = false
}

// Stop ends delivery. A call of the receiver may still be in progress.
func (e *Queue) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isStopped, e.queue = true, nil
}
