package progress

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
)

// A Completion is an event that one goroutine at a time can wait for. Requests embed it. Guarded by the engine's lock.
type Completion struct {
	done bool
	// A wait polls or is parked for it. Not reset by Complete.
	waited bool
	// Waiter to wake, nil while none is parked.
	waiter *Waiter
}

// Done reports whether the completion was completed. Lock held.
func (c *Completion) Done() bool { return c.done }

// Set makes c done at the beginning. Lock held. No wait is pending.
func (c *Completion) Set() { c.done = true }

// Reset makes c pending. Lock held. No wait is pending.
func (c *Completion) Reset() { c.done, c.waited = false, false }

// Clear makes c pending again, even if it was completed during a wait. The wait may then return although c is pending. Lock held.
func (c *Completion) Clear() { c.done = false }

// Waited reports whether a goroutine waits for c, which is pending. Lock held.
func (c *Completion) Waited() bool { return c.waited }

// Complete marks c done and wakes the goroutine that waits for it. Lock held.
func (e *Engine) Complete(c *Completion) {
	c.done = true
	if c.waiter != nil {
		c.wake(e)
	}
}

// wake is not inlined, so that Complete stays small.
//
//go:noinline
func (c *Completion) wake(e *Engine) {
	w := c.waiter
	// Before w runs, c may be reused, with another waiter.
	c.waiter = nil
	w.fire(e)
}

// A Waiter is one goroutine's wait, possibly for several completions.
type Waiter struct {
	// fired and parked are guarded by the lock of the wait's engine. They are unused if the wait has several engines.
	fired  bool
	parked bool
	wake   chan struct{} // Has capacity 1.
	// nil if all completions have the same engine.
	multi *MultiWait
}

func (w *Waiter) fire(e *Engine) {
	if w.multi != nil {
		w.multi.countDown()
		return
	}
	w.fired = true
	if w.parked {
		w.parked = false
		e.addParked(-1)
		w.wake <- struct{}{}
	}
}

// ErrBusy is returned to the second of two goroutines that wait for the same completion at the same time.
var ErrBusy = errors.New("another goroutine already waits for this request")

// Wait blocks until c is done, or until ctx ends. It then returns the cause of ctx, and c stays pending. Lock held, released meanwhile. first, if not nil,
// is polled more often than the other sources.
func (e *Engine) Wait(ctx context.Context, c *Completion, first Source) error {
	if c.done {
		return nil
	}
	c.waited = true
	if !e.polling.isSet() {
		if err := e.active(ctx, &c.done, first); err != nil || c.done {
			c.waited = false
			return err
		}
	}
	if c.waiter != nil {
		return ErrBusy
	}
	w := e.newWaiter()
	c.waiter = w
	err := e.park(ctx, w)
	if c.waiter == w {
		c.waiter, c.waited = nil, false
	}
	e.free = append(e.free, w)
	return err
}

// WaitAny is Wait for any of several completions. It ignores nil ones.
func (e *Engine) WaitAny(ctx context.Context, cs []*Completion) error {
	for _, c := range cs {
		if c != nil && c.waiter != nil {
			return ErrBusy
		}
	}
	w := e.newWaiter()
	for _, c := range cs {
		if c == nil {
			continue
		}
		c.waiter, c.waited = w, true
		w.fired = w.fired || c.done
	}
	var err error
	if !w.fired && !e.polling.isSet() {
		err = e.active(ctx, &w.fired, nil)
	}
	if !w.fired && err == nil {
		err = e.park(ctx, w)
	}
	for _, c := range cs {
		if c != nil && c.waiter == w {
			c.waiter, c.waited = nil, false
		}
	}
	e.free = append(e.free, w)
	return err
}

func (e *Engine) newWaiter() *Waiter {
	if n := len(e.free); n > 0 {
		w := e.free[n-1]
		e.free = e.free[:n-1]
		w.fired = false
		return w
	}
	return &Waiter{wake: make(chan struct{}, 1)}
}

// park blocks until w fires or ctx ends. Lock held, released meanwhile.
func (e *Engine) park(ctx context.Context, w *Waiter) error {
	if w.fired {
		return nil
	}
	if e.closed {
		return framework.ErrClosed
	}
	if e.rank != nil {
		word := e.rank.word
		word.addParked(1)
		defer word.addParked(-1)
		e.poll() // Work published before the wait was counted.
		e.runTasks(nil)
		if w.fired {
			return nil
		}
	}
	w.parked = true
	// The count precedes the token. stopPolling accesses them in the opposite order, so that one of the two wakes the progress goroutine.
	e.addParked(1)
	if p := e.process; !p.polling.load() {
		p.background.wake()
	}
	e.Unlock()
	var cancel <-chan struct{}
	if ctx != nil {
		cancel = ctx.Done()
	}
	var err error
	select {
	case <-w.wake:
		e.Lock()
		return nil
	case <-cancel:
		err = context.Cause(ctx)
	}
	e.Lock()
	if !w.parked { // It fired before the lock was acquired.
		<-w.wake
		return nil
	}
	w.parked = false
	e.addParked(-1)
	return err
}

// addParked changes the number of parked waits, for a rank that of its process. Lock held.
func (e *Engine) addParked(n int) {
	if e.rank == nil {
		e.parked += n
	} else {
		e.process.parkedRanks.Add(int64(n))
	}
}
