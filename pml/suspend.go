package pml

// Suspension of receives from any source, see Comm.Suspend.

// Suspend makes waits and tests of the pending operation return why, and leaves it active, until Resume,
// Cancel or the end of the operation. A request with a notifier is not suspended. The engine's lock is held.
func (r *Request) Suspend(why error) {
	if r.exceptions&^exceptionSuspended != 0 || !r.isPending() {
		return
	}
	r.exceptions |= exceptionSuspended
	r.suspendReason = why
	r.engine.Complete(&r.Completion) // Wakes the waiting goroutine.
}

// Resume ends a suspension. Call it when the operation has matched and its payload is yet to come. The engine's lock
// is held.
func (r *Request) Resume() {
	if r.exceptions&exceptionSuspended != 0 {
		r.resume()
	}
}

func (r *Request) resume() {
	r.exceptions &^= exceptionSuspended
	r.suspendReason = nil
	r.Clear()
}

// SetSuspended is Suspend with a reason, and Resume without one.
func (r *Request) SetSuspended(why error) {
	if why == nil {
		r.Resume()
	} else {
		r.Suspend(why)
	}
}

// Suspended returns the reason of a suspension if the handle is valid, otherwise nil. The engine's lock is
// held.
func (r *Request) Suspended(generation uint32) error {
	if r.isSuspended() && r.Live(generation) {
		return r.suspendReason
	}
	return nil
}

func (r *Request) isSuspended() bool { return r.exceptions&exceptionSuspended != 0 }

// isPending reports whether the operation is not complete.
func (r *Request) isPending() bool { return !r.Done() || r.isSuspended() }

// suspension polls once, and returns the reason of a suspension if no message has matched. The engine's lock is held.
func (r *Request) suspension() error {
	if r.isSuspended() {
		r.engine.Progress()
	}
	if r.isSuspended() {
		return r.suspendReason
	}
	return nil
}
