package pml

import (
	"context"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Request is an operation in progress. A PML embeds it in its own request type and reuses it. A user's handle is the
// pointer and the generation at the start of the operation.
//
// The engine's lock guards all fields below Completion.
type Request struct {
	progress.Completion
	Status Status

	engine *progress.Engine
	// generation changes when the request is released.
	generation uint32
	// exceptions is a set of bits, which Finish clears.
	exceptions uint8
	// isBlockingCall is set by Conclude.
	isBlockingCall bool
	owner          Owner
	notifier       Notifier
	suspendReason  error
}

// Exceptions of a pending operation. Operations without any need one comparison.
const (
	// exceptionFreed is set if the user has freed the request.
	exceptionFreed uint8 = 1 << iota
	// exceptionNotify is set if the request has a notifier.
	exceptionNotify
	// exceptionSuspended is set if the Completion is done although the operation is not, see suspend.go.
	exceptionSuspended
	// exceptionCanceled is set if the operation was canceled, so that Suspend has no effect.
	exceptionCanceled
)

// A Notifier is called when an operation completes.
type Notifier interface {
	// Completed is called once, with the engine's lock held, by the code that completes the request. It must not
	// block. It may start and cancel other operations, and take the request (Take), which may also happen later.
	Completed(r *Request)
}

// Owner is the PML's part of a request. All methods are called with the engine's lock held.
type Owner interface {
	// Cancel withdraws the operation if it has not matched. The owner then sets Status.Canceled and completes the
	// request. Otherwise it does nothing.
	Cancel()
	// Release returns a completed request to the PML, which may reuse it.
	Release()
	// First returns the source that a wait polls first, or nil.
	First() progress.Source
}

// Lasting is an optional interface of an Owner with operations that cannot be canceled.
type Lasting interface {
	// Lasting returns the error of Request.Cancel.
	Lasting() error
}

// Abandoner is an optional interface of an Owner with blocking operations that may outlive their call, see Conclude.
type Abandoner interface {
	// Abandon reports whether the caller of an operation that is pending after Cancel gets a PendingError. It may
	// wait a while, and release the engine's lock meanwhile.
	Abandon() bool
}

// Init sets the engine and the owner. It is called once.
func (r *Request) Init(e *progress.Engine, owner Owner) {
	r.engine, r.owner = e, owner
	r.generation = 1
}

// Generation returns the generation of a handle. Only the code that has started the operation may call it, before the
// request can be released.
func (r *Request) Generation() uint32 { return r.generation }

// Stale reports whether a handle was released or freed.
func (r *Request) Stale(generation uint32) bool {
	r.engine.Lock()
	defer r.engine.Unlock()
	return !r.Live(generation)
}

// Start makes the request pending. The engine's lock is held.
func (r *Request) Start() {
	r.Reset()
	r.Status = Status{}
	r.exceptions, r.isBlockingCall = 0, false
}

// StartDone makes the request complete, without a message or an error, for an operation that completes at its start.
// The engine's lock is held.
func (r *Request) StartDone() {
	r.Completion.Set()
	r.Status.Source, r.Status.Tag, r.Status.Bytes = AnySource, AnyTag, 0
	r.Status.Canceled, r.Status.Err = false, nil
	r.exceptions = 0
}

// Finish completes the request with the Status that the caller has set. The engine's lock is held.
func (r *Request) Finish() {
	r.engine.Complete(&r.Completion)
	if r.exceptions != 0 {
		r.handleExceptions()
	}
}

func (r *Request) handleExceptions() {
	if r.exceptions&exceptionFreed != 0 {
		r.recycle()
		return
	}
	n := r.notifier
	r.exceptions, r.notifier, r.suspendReason = 0, nil, nil
	if n != nil {
		n.Completed(r)
	}
}

// Notify sets the notifier of a pending request. The caller has started the operation under the engine's lock, still
// holds it, and keeps the handle to itself. If it frees the request before the end, n is not called.
func (r *Request) Notify(n Notifier) { r.exceptions, r.notifier = exceptionNotify, n }

// Source returns the source that a wait polls first, or nil. The engine's lock is held.
func (r *Request) Source() progress.Source { return r.owner.First() }

// Awaited returns the kind of wait for the operation. If the notifier embeds the Request of a larger operation of the same
// engine, it is the kind of wait for that operation. The engine's lock is held.
func (r *Request) Awaited() Awaited {
	if r.exceptions&exceptionNotify != 0 {
		if whole, ok := r.notifier.(interface {
			engineOf() *progress.Engine
			Awaited() Awaited
		}); ok && whole.engineOf() == r.engine {
			return whole.Awaited()
		}
	}
	switch {
	case r.isBlockingCall:
		return AwaitedInCall
	case r.Waited():
		return AwaitedLater
	}
	return NotAwaited
}

// engineOf returns the engine whose lock guards the request.
func (r *Request) engineOf() *progress.Engine { return r.engine }

// CancelLocked is Cancel for the caller that started the operation, with the engine's lock held.
// The request may complete before it returns.
func (r *Request) CancelLocked() {
	r.Resume()
	if !r.Done() {
		r.exceptions |= exceptionCanceled
		r.owner.Cancel()
	}
}

func (r *Request) recycle() {
	r.generation++
	r.owner.Release()
}

// Conclude waits for an operation of a blocking call, and releases the request. If ctx ends first, or the request is
// suspended, an unmatched operation is withdrawn and a matched one is waited for. If neither is possible, the caller gets
// the request in a PendingError. The engine's lock is held, and released during waits. The caller unlocks a rank's engine
// with progress.Engine.Release.
func (r *Request) Conclude(ctx context.Context) (Status, error) {
	var err error
	for err == nil && (!r.Done() || r.exceptions != 0) {
		if r.Done() {
			err = r.suspension()
			continue
		}
		r.isBlockingCall = true
		err = r.engine.Wait(ctx, &r.Completion, r.owner.First())
	}
	if err != nil {
		r.CancelLocked()
		if a, ok := r.owner.(Abandoner); ok && !r.Done() && a.Abandon() {
			return NoMessage(), &PendingError{Request: r, Cause: err}
		}
		r.engine.Wait(nil, &r.Completion, r.owner.First())
	}
	st := r.Status
	if !st.Canceled {
		err = st.Err // The operation had matched when ctx ended.
	}
	r.owner.Release()
	return st, err
}

// PendingError is the error of Comm.Send if its context has ended and the PML can neither withdraw the message nor exclude
// that it will be received. Below an MTL or UCX it may have matched already, and elsewhere a matched probe may have
// claimed it. The send continues, unless its receiver returns it. The PML owns its buffer until Request completes. The
// caller owns Request as if Isend had returned it. errors.Is matches Cause.
type PendingError struct {
	Request *Request
	// Cause is the cause of the context.
	Cause error
}

func (e *PendingError) Error() string { return "send cannot be withdrawn: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *PendingError) Unwrap() error { return e.Cause }

// Wait blocks until the operation completes, releases the request, and returns the status and its error. The handle is
// invalid afterwards. If ctx ends first, the request stays and the error is the cause of ctx. A suspended request stays
// too, and the error is the reason of the suspension.
func (r *Request) Wait(ctx context.Context, generation uint32) (Status, error) {
	e := r.engine
	e.Lock()
	if r.Done() || !r.Live(generation) {
		st, done, err := r.Take(generation)
		if done || !r.isSuspended() {
			e.Unlock()
			return st, err
		}
		e.Progress() // The message may have arrived.
	}
	st, err := r.WaitLocked(ctx, generation, r.owner.First())
	e.Unlock()
	return st, err
}

// WaitLocked is Wait with the engine's lock held, and released during waits, for taking many requests under one lock.
// first is polled more often than other sources, and may be nil.
func (r *Request) WaitLocked(ctx context.Context, generation uint32, first progress.Source) (Status, error) {
	for {
		if r.Live(generation) && !r.Done() {
			if err := r.engine.Wait(ctx, &r.Completion, first); err != nil {
				return NoMessage(), err
			}
		}
		st, done, err := r.Take(generation) // Another goroutine may have taken it.
		if done || err != nil {             // Otherwise a suspension has started and ended.
			return st, err
		}
	}
}

// Test polls once and returns the result of Wait without waiting. done is false while the operation is pending, with an
// error if it is suspended.
func (r *Request) Test(generation uint32) (st Status, done bool, err error) {
	e := r.engine
	e.Lock()
	defer e.Unlock()
	if st, done, err = r.Take(generation); done || err != nil && !r.isSuspended() {
		return st, done, err
	}
	e.Progress()
	return r.Take(generation)
}

// Peek is Test without releasing the request (MPI_Request_get_status).
func (r *Request) Peek(generation uint32) (st Status, done bool, err error) {
	e := r.engine
	e.Lock()
	defer e.Unlock()
	if !r.Live(generation) {
		return NoMessage(), false, framework.ErrClosed
	}
	if r.isPending() {
		e.Progress()
	}
	if r.isPending() {
		return NoMessage(), false, r.suspendReason
	}
	return r.Status, true, r.Status.Err
}

// Cancel withdraws the operation if it has not matched. The handle stays valid, and Status.Canceled of Wait has the
// outcome.
func (r *Request) Cancel(generation uint32) error {
	r.engine.Lock()
	defer r.engine.Release() // A rank's engine may have deferred a part of it.
	if !r.Live(generation) {
		return framework.ErrClosed
	}
	if l, ok := r.owner.(Lasting); ok {
		return l.Lasting()
	}
	r.CancelLocked()
	return nil
}

// Free releases the handle. A pending operation continues.
func (r *Request) Free(generation uint32) error {
	r.engine.Lock()
	defer r.engine.Unlock()
	if !r.Live(generation) {
		return framework.ErrClosed
	}
	r.Resume()
	if r.Done() {
		r.recycle()
	} else {
		r.exceptions |= exceptionFreed
	}
	return nil
}
