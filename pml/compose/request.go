package compose

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// request is a receive that is posted with wildcards. Requests are reused.
type request struct {
	pml.Request
	postedRecv match.Recv[request]
	j          *Joiner
	// w is nil in the free list.
	w       *wildcards
	userBuf pml.Buffer
	// innerRequest is the request of the PML that has the receive, nil while it waits for a message of the node.
	innerRequest *pml.Request
	// hasMessage is set once it has a message of the node.
	hasMessage bool
	// isCanceled is set if the user has canceled it.
	isCanceled bool
	// withdrawErr is its error if the network's PML withdraws it.
	withdrawErr error
	nextFree    *request
}

// newRequest returns a started request from the free list, or a new one. Lock held.
func (j *Joiner) newRequest(w *wildcards) *request {
	r := j.freeRequests
	if r == nil {
		r = &request{j: j}
		r.postedRecv.Owner = r
		r.Init(j.engine, r)
		j.allRequests = append(j.allRequests, r)
	} else {
		j.freeRequests, r.nextFree = r.nextFree, nil
	}
	r.Start()
	r.w = w
	return r
}

// emitRecv emits the event of a receive that is posted in neither PML.
func (r *request) emitRecv() {
	r.j.event(pml.Event{Kind: pml.EventRecv, Comm: r.w.c.spec.ID, Tag: r.postedRecv.Tag, Bytes: r.userBuf.Len(), Plane: r.w.plane})
}

// deliver starts the receive of a message of the node. Lock held.
func (r *request) deliver(msg *message) {
	r.hasMessage = true
	r.Resume()
	claimed := msg.claimedMessage
	msg.claimedMessage = nil
	part, err := claimed.Start(r.userBuf)
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
	r.innerRequest = part
	part.Notify(r)
}

// Completed implements pml.Notifier.
func (r *request) Completed(part *pml.Request) {
	st, _, _ := part.Take(part.Generation())
	r.innerRequest = nil
	if w := r.w; w.withdrawingRecv == r && st.Canceled && !r.isCanceled {
		msg := w.arrivedMessages[0]
		w.arrivedMessages, w.withdrawingRecv = w.arrivedMessages[1:], nil
		r.deliver(msg)
		w.settle()
		return
	}
	if st.Canceled && !r.isCanceled && r.withdrawErr != nil {
		st = pml.Status{Err: r.withdrawErr}
	}
	r.finish(st)
}

// withdraw ends a receive from any source that has no message yet. Lock held.
func (r *request) withdraw(why error) {
	if r.withdrawErr = why; r.innerRequest != nil { // Otherwise post is starting it.
		r.innerRequest.CancelLocked()
	}
}

// finish completes the request. Lock held.
func (r *request) finish(st pml.Status) {
	w := r.w
	isWithdrawing := w.withdrawingRecv == r
	if isWithdrawing {
		w.withdrawingRecv = nil // The message goes to another receive.
	}
	w.matchQueues.Cancel(&r.postedRecv)
	w.pendingRecvs--
	r.Status, r.userBuf = st, pml.Buffer{}
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
	case r.innerRequest != nil:
		r.isCanceled = true
		r.innerRequest.CancelLocked()
	default:
		st := pml.NoMessage()
		st.Canceled = true
		r.finish(st)
	}
}

// Release implements pml.Owner.
func (r *request) Release() {
	r.w, r.hasMessage, r.isCanceled, r.withdrawErr = nil, false, false, nil
	r.nextFree = r.j.freeRequests
	r.j.freeRequests = r
}

// First implements pml.Owner. The message may come from either side.
func (r *request) First() progress.Source { return nil }
