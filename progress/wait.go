package progress

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
)

// A Completion is an event that one goroutine at a time can wait for. Requests embed it. Guarded by the engine's lock.
type Completion struct {
	isDone bool
	// A wait polls or is parked for it. Not reset by Complete.
	isWaited bool
	// Waiter to wake, nil while none is parked.
	waiter *Waiter
}

// Done reports whether the completion was completed. Lock held.
func (c *Completion) Done() bool { return c.isDone }

// Set makes c done at the beginning. Lock held. No wait is pending.
func (c *Completion) Set() { c.isDone = true }

// Reset makes c pending. Lock held. No wait is pending.
func (c *Completion) Reset() { c.isDone, c.isWaited = false, false }

// Clear makes c pending again, even if it was completed during a wait. The wait may then return although c is pending. Lock held.
func (c *Completion) Clear() { c.isDone = false }

// Waited reports whether a goroutine waits for c, which is pending. Lock held.
func (c *Completion) Waited() bool { return c.isWaited }

// Complete marks c done and wakes the goroutine that waits for it. Lock held.
func (e *Engine) Complete(c *Completion) {
	c.isDone = true
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
	// hasFired and isParked are guarded by the lock of the wait's engine. They are unused if the wait has several engines.
	hasFired bool
	isParked bool
	wakeup   chan struct{} // Has capacity 1.
	// nil if all completions have the same engine.
	multiWait *MultiWait
}

func (w *Waiter) fire(e *Engine) {
	if w.multiWait != nil {
		w.multiWait.countDown()
		return
	}
	w.hasFired = true
	if w.isParked {
		w.isParked = false
		e.addParked(-1)
		w.wakeup <- struct{}{}
	}
}

// ErrBusy is returned to the second of two goroutines that wait for the same completion at the same time.
var ErrBusy = errors.New("another goroutine already waits for this request")

// Wait blocks until c is done, or until ctx ends. It then returns the cause of ctx, and c stays pending. Lock held, released meanwhile. first, if not nil,
// is polled more often than the other sources.
func (e *Engine) Wait(ctx context.Context, c *Completion, first Source) error {
	if c.isDone {
		return nil
	}
	c.isWaited = true
	if !e.pollToken.isSet() {
		if err := e.active(ctx, &c.isDone, first); err != nil || c.isDone {
			c.isWaited = false
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
		c.waiter, c.isWaited = nil, false
	}
	e.freeWaiters = append(e.freeWaiters, w)
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
		c.waiter, c.isWaited = w, true
		w.hasFired = w.hasFired || c.isDone
	}
	var err error
	if !w.hasFired && !e.pollToken.isSet() {
		err = e.active(ctx, &w.hasFired, nil)
	}
	if !w.hasFired && err == nil {
		err = e.park(ctx, w)
	}
	for _, c := range cs {
		if c != nil && c.waiter == w {
			c.waiter, c.isWaited = nil, false
		}
	}
	e.freeWaiters = append(e.freeWaiters, w)
	return err
}

func (e *Engine) newWaiter() *Waiter {
	if n := len(e.freeWaiters); n > 0 {
		w := e.freeWaiters[n-1]
		e.freeWaiters = e.freeWaiters[:n-1]
		w.hasFired = false
		return w
	}
	return &Waiter{wakeup: make(chan struct{}, 1)}
}

// park blocks until w fires or ctx ends. Lock held, released meanwhile.
func (e *Engine) park(ctx context.Context, w *Waiter) error {
	if w.hasFired {
		return nil
	}
	if e.isClosed {
		return framework.ErrClosed
	}
	if e.rankPart != nil {
		word := e.rankPart.pollWord
		word.addParked(1)
		defer word.addParked(-1)
		e.poll() // Work published before the wait was counted.
		e.runTasks(nil)
		if w.hasFired {
			return nil
		}
	}
	w.isParked = true
	// The count precedes the token. stopPolling accesses them in the opposite order, so that one of the two wakes the progress goroutine.
	e.addParked(1)
	if p := e.processEngine; !p.pollToken.load() {
		p.progressGoroutine.wake()
	}
	e.Unlock()
	var cancel <-chan struct{}
	if ctx != nil {
		cancel = ctx.Done()
	}
	var err error
	select {
	case <-w.wakeup:
		e.Lock()
		return nil
	case <-cancel:
		err = context.Cause(ctx)
	}
	e.Lock()
	if !w.isParked { // It fired before the lock was acquired.
		<-w.wakeup
		return nil
	}
	w.isParked = false
	e.addParked(-1)
	return err
}

// addParked changes the number of parked waits, for a rank that of its process. Lock held.
func (e *Engine) addParked(n int) {
	if e.rankPart == nil {
		e.parkedWaits += n
	} else {
		e.processEngine.parkedRanks.Add(int64(n))
	}
}
