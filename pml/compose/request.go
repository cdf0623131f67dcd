package compose

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// request is a receive that is posted with wildcards. Requests are reused.
type request struct {
	pml.Request
	posted match.Recv[request]
	j      *Joiner
	// w is nil in the free list.
	w   *wildcards
	buf pml.Buffer
	// inner is the request of the PML that has the receive, nil while it waits for a message of the node.
	inner *pml.Request
	// hasMessage is set once it has a message of the node.
	hasMessage bool
	// isCanceled is set if the user has canceled it.
	isCanceled bool
	// cause is its error if the network's PML withdraws it.
	cause error
	next  *request
}

// newRequest returns a started request from the free list, or a new one. Lock held.
func (j *Joiner) newRequest(w *wildcards) *request {
	r := j.free
	if r == nil {
		r = &request{j: j}
		r.posted.Owner = r
		r.Init(j.engine, r)
		j.requests = append(j.requests, r)
	} else {
		j.free, r.next = r.next, nil
	}
	r.Start()
	r.w = w
	return r
}

// emitRecv emits the event of a receive that is posted in neither PML.
func (r *request) emitRecv() {
	r.j.event(pml.Event{Kind: pml.EventRecv, Comm: r.w.c.spec.ID, Tag: r.posted.Tag, Bytes: r.buf.Len(), Plane: r.w.plane})
}

// deliver starts the receive of a message of the node. Lock held.
func (r *request) deliver(msg *message) {
	r.hasMessage = true
	r.Resume()
	claimed := msg.claimed
	msg.claimed = nil
	part, err := claimed.Start(r.buf)
	if err != nil {
		r.fail(err)
		return
	}
	r.followInner(part)
}

// followInner completes the receive with part. Lock held.
func (r *request) followInner(part *pml.Request) {
	if part.Done() {
		r.Completed(part)
		return
	}
	r.inner = part
	part.Notify(r)
}

// Completed implements pml.Notifier.
func (r *request) Completed(part *pml.Request) {
	st, _, _ := part.Take(part.Generation())
	r.inner = nil
	if w := r.w; w.withdrawing == r && st.Canceled && !r.isCanceled {
		msg := w.arrived[0]
		w.arrived, w.withdrawing = w.arrived[1:], nil
		r.deliver(msg)
		w.settle()
		return
	}
	if st.Canceled && !r.isCanceled && r.cause != nil {
		st = pml.Status{Err: r.cause}
	}
	r.finish(st)
}

// withdraw ends a receive from any source that has no message yet. Lock held.
func (r *request) withdraw(why error) {
	if r.cause = why; r.inner != nil { // Otherwise post is starting it.
		r.inner.CancelLocked()
	}
}

// finish completes the request. Lock held.
func (r *request) finish(st pml.Status) {
	w := r.w
	isWithdrawing := w.withdrawing == r
	if isWithdrawing {
		w.withdrawing = nil // The message goes to another receive.
	}
	w.queues.Cancel(&r.posted)
	w.pending--
	r.Status, r.buf = st, pml.Buffer{}
	r.Finish()
	if isWithdrawing {
		w.settle()
	}
	w.endIfUnused()
}

// fail completes the request with an error. Lock held.
func (r *request) fail(err error) { r.finish(pml.Status{Err: err}) }

// Cancel implements pml.Owner.
func (r *request) Cancel() {
	switch {
	case r.hasMessage:
	case r.inner != nil:
		r.isCanceled = true
		r.inner.CancelLocked()
	default:
		st := pml.NoMessage()
		st.Canceled = true
		r.finish(st)
	}
}

// Release implements pml.Owner.
func (r *request) Release() {
	r.w, r.hasMessage, r.isCanceled, r.cause = nil, false, false, nil
	r.next = r.j.free
	r.j.free = r
}

// First implements pml.Owner. The message may come from either side.
func (r *request) First() progress.Source { return nil }
