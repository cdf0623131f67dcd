// Package trial tries what a library offers to an MTL: calls that may not come back get a
// deadline (Within), and a module that has opened is tested within this process, by messages to
// itself (Test). OnDisk looks for the library itself.
//
// It stands on the contract alone, and knows no library.
package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrHangs is the error of a call of a library that has not returned in time.
var ErrHangs = errors.New("it does not return")

// hanging has the calls that have not returned though Within has, by name. Their threads are lost, and they may hold
// locks of the library.
var hanging sync.Map // Of *abandoned.

// An abandoned call has not returned.
type abandoned struct {
	since     time.Time
	isOverdue bool          // It missed its deadline. Otherwise the context of its caller ended before.
	returned  chan struct{} // Closed when it returns.
}

// awaitAbandoned waits for the abandoned call of a name. It returns ErrHangs at once if the call missed its deadline, so
// that no second thread is lost.
func awaitAbandoned(ctx context.Context, deadline time.Duration, name string) error {
	wait := NewPatience(deadline)
	tick := time.NewTicker(wait.step)
	defer tick.Stop()
	for {
		v, ok := hanging.Load(name)
		if !ok {
			return nil
		}
		call := v.(*abandoned)
		if call.isOverdue {
			return fmt.Errorf("%w since %v", ErrHangs, call.since.Format(time.RFC3339))
		}
		select {
		case <-call.returned:
		case <-tick.C:
			if wait.Over() {
				hanging.CompareAndSwap(name, call, &abandoned{call.since, true, call.returned})
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrHangs, context.Cause(ctx))
		}
	}
}

// Patience is a deadline in steps of a twentieth. A process that is stopped, or
// starved of processors, for long loses one step by it.
type Patience struct {
	left, step time.Duration
	last       time.Time
}

func NewPatience(d time.Duration) *Patience { return &Patience{d, max(d/20, 1), time.Now()} }

// Over reports whether the time is up. It has to be asked at every step.
func (p *Patience) Over() bool {
	now := time.Now()
	p.left -= min(now.Sub(p.last), p.step)
	p.last = now
	return p.left <= 0
}

// Within calls f, and waits for it until the deadline. f may end up in C code that
// never returns: then its goroutine and its thread are left behind; Within
// returns an error that wraps ErrHangs. What f succeeds with after all goes to late.
// f's context ends when f is given up. If an earlier call of the name was given up because its ctx ended, Within waits for the
// return of that call first.
func Within[T any](ctx context.Context, deadline time.Duration, name string, f func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	if err := awaitAbandoned(ctx, deadline, name); err != nil {
		return none, err
	}
	type result struct {
		v   T
		err error
	}
	given, giveUp := context.WithCancel(context.Background())
	defer giveUp()
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
			hanging.Delete(name)
		}
	}()
	wait := NewPatience(deadline)
	tick := time.NewTicker(wait.step)
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
	case r := <-done: // just in time
		return r.v, r.err
	default:
	}
	hanging.Store(name, &abandoned{time.Now(), ctx.Err() == nil, returned})
	return none, err
}

// Hanging is how many calls were given up and have not come back.
func Hanging() (n int) {
	hanging.Range(func(any, any) bool { n++; return true })
	return n
}
