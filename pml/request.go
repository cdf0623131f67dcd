package pml

import (
	"context"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Request is one operation in progress. A PML embeds it in its own request,
// makes it once, and uses it again and again: what users hold is the pointer
// together with the generation that was current when the operation began.
//
// The fields below Completion are guarded by the engine's lock.
type Request struct {
	progress.Completion
	Status Status

	engine     *progress.Engine
	generation uint32 // changes when the request is released
	exceptions  uint8  // Exceptions, as bits. Finish clears them.
	isBlockingCall     bool   // it is of a blocking call, see Conclude
	owner      Owner
	notifier   Notifier
	suspendReason        error // Reason of a suspension.
}

// Exceptions of a pending operation. There are none in the usual case, which costs one comparison.
const (
	exceptionFreed     uint8 = 1 << iota // The user has freed the request.
	exceptionNotify                      // The notifier waits for the end.
	exceptionSuspended                   // The Completion is done, but the operation is not; see suspend.go.
	exceptionCanceled                    // Suspend has no effect.
)

// A Notifier is told that an operation is complete.
type Notifier interface {
	// Completed is called once, with the engine's lock held, by whatever has completed
	// the request. It must not block, and may start and cancel other operations. Who
	// takes the request does so here (Take), or later.
	Completed(r *Request)
}

// Owner is the PML's side of a request. All calls come with the engine's lock
// held.
type Owner interface {
	// Cancel withdraws the operation if it has not matched yet: the owner then
	// sets Status.Canceled and completes the request. Otherwise it does nothing.
	Cancel()
	// Release takes a completed request back; nobody uses it until it is handed
	// out again.
	Release()
	// First is what a wait polls first, or nil.
	First() progress.Source
}

// Lasting is an optional ability of an Owner whose operations can't be canceled.
type Lasting interface {
	// Lasting returns the error of Request.Cancel.
	Lasting() error
}

// Abandoner is an optional ability of an Owner whose blocking operations may have to go
// on without their caller, see Conclude.
type Abandoner interface {
	// Abandon says of an operation that is still pending after Cancel whether its caller
	// is to get a PendingError. It may wait a while, releasing the engine's lock.
	Abandon() bool
}

// Init ties the request to its engine and owner, once.
func (r *Request) Init(e *progress.Engine, owner Owner) {
	r.engine, r.owner = e, owner
	r.generation = 1
}

// Generation is what a handle keeps beside the pointer. Only who has started the
// operation may ask, before anybody else can have used the request up.
func (r *Request) Generation() uint32 { return r.generation }

// Stale reports whether a handle was used up or freed.
func (r *Request) Stale(generation uint32) bool {
	r.engine.Lock()
	defer r.engine.Unlock()
	return !r.Live(generation)
}

// Start makes the request pending. Engine's lock held.
func (r *Request) Start() {
	r.Reset()
	r.Status = Status{}
	r.exceptions, r.isBlockingCall = 0, false
}

// StartDone makes the request complete, without a message and without an error:
// that of an operation which was over when it began. Engine's lock held.
func (r *Request) StartDone() {
	r.Completion.Set()
	r.Status.Source, r.Status.Tag, r.Status.Bytes = AnySource, AnyTag, 0
	r.Status.Canceled, r.Status.Err = false, nil
	r.exceptions = 0
}

// Finish completes the request with the status that is set. Engine's lock held.
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

// Notify makes the request call n when it completes. The caller has started the operation under the
// engine's lock, still holds it, and has checked that the request is not Done. It does not give the
// handle away. If it frees the request before the end, n is not called.
func (r *Request) Notify(n Notifier) { r.exceptions, r.notifier = exceptionNotify, n }

// Source returns the source that a wait polls first, or nil. Engine's lock held.
func (r *Request) Source() progress.Source { return r.owner.First() }

// Awaited reports how the operation is waited for. A part of another operation is waited for like the latter, if the notifier
// embeds that operation's Request and both are of one engine. Engine's lock held.
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

// Conclude waits for an operation that only the caller knows, and uses the request up. If
// ctx ends first, or the request is suspended, it is withdrawn if it has not matched, and waited for otherwise; or it
// becomes the caller's, by a PendingError. Engine's lock held, and released meanwhile. The
// caller releases the lock of a rank's engine by progress.Engine.Release.
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
		err = st.Err // it had matched, if ctx has ended
	}
	r.owner.Release()
	return st, err
}

// PendingError is what Comm.Send returns when its context has ended and the PML
// can neither withdraw the message nor say that it never will be received:
// below an MTL or UCX it may have matched already, and elsewhere a matched probe
// may have claimed it. The send goes on, unless its receiver gives it back after
// all; its buffer is the PML's until Request is complete, and Request is the
// caller's, as if Isend had returned it. errors.Is finds Cause.
type PendingError struct {
	Request *Request
	Cause   error // the context's
}

func (e *PendingError) Error() string { return "send can't be withdrawn: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *PendingError) Unwrap() error { return e.Cause }

// Wait blocks until the operation is complete, returns its status and releases
// the request: the handle is used up. If ctx ends first the request stays as it
// is, and the error is ctx's cause. A suspended request stays too, and the error is the reason. The status's Err is
// returned otherwise.
func (r *Request) Wait(ctx context.Context, generation uint32) (Status, error) {
	e := r.engine
	e.Lock()
	if r.Done() || !r.Live(generation) {
		st, done, err := r.Take(generation)
		if done || !r.isSuspended() {
			e.Unlock()
			return st, err
		}
		e.Progress() // the message may be here
	}
	st, err := r.WaitLocked(ctx, generation, r.owner.First())
	e.Unlock()
	return st, err
}

// WaitLocked is Wait under the engine's lock, which is released while it waits:
// for a caller who takes many requests under one lock. first is what is polled
// more often than the rest, or nil.
func (r *Request) WaitLocked(ctx context.Context, generation uint32, first progress.Source) (Status, error) {
	for {
		if r.Live(generation) && !r.Done() {
			if err := r.engine.Wait(ctx, &r.Completion, first); err != nil {
				return NoMessage(), err
			}
		}
		st, done, err := r.Take(generation) // another goroutine may have taken it meanwhile
		if done || err != nil {             // otherwise a suspension began and ended
			return st, err
		}
	}
}

// Test is Wait without waiting. done is false while the operation is pending, with an error if it is suspended.
// It progresses once.
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

// Cancel withdraws the operation if it has not matched yet; the handle stays
// valid, and Wait tells by Status.Canceled.
func (r *Request) Cancel(generation uint32) error {
	r.engine.Lock()
	defer r.engine.Release() // a rank's engine may have deferred a part of it
	if !r.Live(generation) {
		return framework.ErrClosed
	}
	if l, ok := r.owner.(Lasting); ok {
		return l.Lasting()
	}
	r.CancelLocked()
	return nil
}

// Free gives the handle up; a pending operation goes on and completes unseen.
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
