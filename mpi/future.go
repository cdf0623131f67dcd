package mpi

import (
	"context"
	"fmt"
)

// Future is the result of a call in progress. Use it by the pointer.
type Future[T any] struct {
	// Closed at the end.
	done chan struct{}
	// Written before done is closed.
	value T
	err   error
}

// Done returns a channel that is closed when the call has ended.
func (f *Future[T]) Done() <-chan struct{} { return f.done }

// Wait blocks until the call has ended, and returns its result; any number of times, in any goroutine.
// If ctx ends first only the wait ends. Closing the session ends the call with ErrClosed.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	ctx = background(ctx)
	select {
	case <-f.done:
		return f.value, f.err
	default:
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		var none T
		return none, ended(ctx, "wait", context.Cause(ctx))
	}
}

// async calls f in a goroutine. Its context ends when the session is closed.
func async[T any](s *Session, f func(context.Context) (T, error)) *Future[T] {
	r := &Future[T]{done: make(chan struct{})}
	err := s.enter()
	var ctx context.Context
	var leave func()
	if err == nil {
		ctx, leave, err = s.asyncs.enter()
	}
	if err != nil {
		r.err = err
		close(r.done)
		return r
	}
	go func() {
		defer leave()
		defer close(r.done)
		if r.value, r.err = f(ctx); r.err != nil && ctx.Err() != nil {
			r.err = fmt.Errorf("%w: %w", closedSession(), r.err)
		}
	}()
	return r
}
