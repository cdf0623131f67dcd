// Package trial calls and tests the library of an MTL. Within limits the time of calls that may not return, and Test.Run tests an
// open module within this process by messages to itself.
//
// The package depends only on the contract in package mtl.
package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrHangs is the error of a library call that has not returned in time.
var ErrHangs = errors.New("it does not return")

// abandonedCalls contains the calls that have not returned after Within did, by name. Their threads are lost and may hold locks of the
// library.
var abandonedCalls sync.Map // Of *abandonedCall.

type abandonedCall struct {
	abandonedAt time.Time
	// isOverdue is set if the call missed its deadline. Otherwise the context of its caller ended before.
	isOverdue bool
	// Closed when the call returns.
	returned chan struct{}
}

// awaitAbandoned blocks until the abandoned call of a name has returned. It returns ErrHangs at once if that call missed its deadline, so
// that no second thread is lost.
func awaitAbandoned(ctx context.Context, deadline time.Duration, name string) error {
	wait := NewPatience(deadline)
	tick := time.NewTicker(wait.maxStep)
	defer tick.Stop()
	for {
		v, ok := abandonedCalls.Load(name)
		if !ok {
			return nil
		}
		call := v.(*abandonedCall)
		if call.isOverdue {
			return fmt.Errorf("%w since %v", ErrHangs, call.abandonedAt.Format(time.RFC3339))
		}
		select {
		case <-call.returned:
		case <-tick.C:
			if wait.Over() {
				abandonedCalls.CompareAndSwap(name, call, &abandonedCall{call.abandonedAt, true, call.returned})
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrHangs, context.Cause(ctx))
		}
	}
}

// Patience is a time limit in steps of a twentieth. Time in which the process is stopped or gets no processor counts as at most one
// step.
type Patience struct {
	timeLeft, maxStep time.Duration
	lastCheckAt       time.Time
}

func NewPatience(d time.Duration) *Patience { return &Patience{d, max(d/20, 1), time.Now()} }

// Over reports whether the time has elapsed. It must be called at least once per step.
func (p *Patience) Over() bool {
	now := time.Now()
	p.timeLeft -= min(now.Sub(p.lastCheckAt), p.maxStep)
	p.lastCheckAt = now
	return p.timeLeft <= 0
}

// Within calls f and waits for it until the deadline. If f does not return, for example because it blocks in C code, Within abandons its
// goroutine and thread and returns an error that wraps ErrHangs. It then ends f's context, and passes a later successful result to late.
// If an earlier call of the name was abandoned because its ctx ended, Within first waits for the return of that call.
func Within[T any](ctx context.Context, deadline time.Duration, name string, f func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	if err := awaitAbandoned(ctx, deadline, name); err != nil {
		return none, err
	}
	type result struct {
		v   T
		err error
	}
	given, abandon := context.WithCancel(context.Background())
	defer abandon()
	done := make(chan result)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		v, err := f(given)
		select {
		case done <- result{v, err}:
		case <-given.Done():
			if err == nil {
				late(v)
			}
			abandonedCalls.Delete(name)
		}
	}()
	wait := NewPatience(deadline)
	tick := time.NewTicker(wait.maxStep)
	defer tick.Stop()
	var err error
	for err == nil {
		select {
		case r := <-done:
			return r.v, r.err
		case <-tick.C:
			if wait.Over() {
				err = fmt.Errorf("%w within %v", ErrHangs, deadline)
			}
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", ErrHangs, context.Cause(ctx))
		}
	}
	select {
	case r := <-done: // It returned in the meantime.
		return r.v, r.err
	default:
	}
	abandonedCalls.Store(name, &abandonedCall{time.Now(), ctx.Err() == nil, returned})
	return none, err
}

// HangingCalls returns the number of abandoned calls that have not returned.
func HangingCalls() (n int) {
	abandonedCalls.Range(func(any, any) bool { n++; return true })
	return n
}
