package compose

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// request is a receive that is posted with wildcards. Requests are made once and used
// again.
type request struct {
	pml.Request
	posted match.Recv[request]
	j      *Joiner
	w      *wildcards // nil in the free list
	buf    pml.Buffer
	part   *pml.Request // of the PML that has the receive; nil: it waits for a message of the node
	given  bool         // it has a message of the node
	user   bool         // its user withdraws it
	why    error        // what it ends with if the network's PML withdraws it
	next   *request     // in the free list
}

// newRequest takes a request from the free list, or makes one. Lock held.
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

// hook tells of a receive that no PML below has seen.
func (r *request) hook() {
	r.j.event(pml.Event{Kind: pml.EventRecv, Comm: r.w.c.spec.ID, Tag: r.posted.Tag, Bytes: r.buf.Len(), Plane: r.w.plane})
}

// give has the receive get a message of the node. Lock held.
func (r *request) give(msg *message) {
	r.given = true
	r.Resume()
	claimed := msg.claimed
	msg.claimed = nil
	part, err := claimed.Start(r.buf)
	if err != nil {
		r.fail(err)
		return
	}
	r.follow(part)
}

// follow has the receive end as part does. Lock held.
func (r *request) follow(part *pml.Request) {
	if part.Done() {
		r.Completed(part)
		return
	}
	r.part = part
	part.Notify(r)
}

// Completed implements pml.Notifier.
func (r *request) Completed(part *pml.Request) {
	st, _, _ := part.Take(part.Generation())
	r.part = nil
	if w := r.w; w.asking == r && st.Canceled && !r.user {
		msg := w.arrived[0]
		w.arrived, w.asking = w.arrived[1:], nil
		r.give(msg)
		w.settle()
		return
	}
	if st.Canceled && !r.user && r.why != nil {
		st = pml.Status{Err: r.why}
	}
	r.finish(st)
}

// end ends a receive from any source that has no message yet. Lock held.
func (r *request) end(why error) {
	if r.why = why; r.part != nil { // else it is being posted, see post
		r.part.CancelLocked()
	}
}

// finish completes the request. Lock held.
func (r *request) finish(st pml.Status) {
	w := r.w
	asked := w.asking == r
	if asked {
		w.asking = nil // the message goes to another one
	}
	w.queues.Cancel(&r.posted)
	w.pending--
	r.Status, r.buf = st, pml.Buffer{}
	r.Finish()
	if asked {
		w.settle()
	}
	w.mayEnd()
}

// fail completes the request with an error. Lock held.
func (r *request) fail(err error) { r.finish(pml.Status{Err: err}) }

// Cancel implements pml.Owner.
func (r *request) Cancel() {
	switch {
	case r.given:
	case r.part != nil:
		r.user = true
		r.part.CancelLocked()
	default:
		st := pml.NoMessage()
		st.Canceled = true
		r.finish(st)
	}
}

// Release implements pml.Owner.
func (r *request) Release() {
	r.w, r.given, r.user, r.why = nil, false, false, nil
	r.next = r.j.free
	r.j.free = r
}

// First implements pml.Owner: the message may come from either side.
func (r *request) First() progress.Source { return nil }
