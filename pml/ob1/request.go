package ob1

import (
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// state is the state of a request.
type state uint8

const (
	// stateIdle is the state of requests in the free list.
	stateIdle state = iota
	// statePosted is a receive in the posted queue.
	statePosted
	// stateQueued is a send before its first frame.
	stateQueued
	// stateOffered is a send with an unanswered RTS.
	stateOffered
	// stateWithdrawing is a canceled send that has asked the receiver to return the RTS.
	stateWithdrawing
	// statePipelining is a send or receive in the pipeline protocol.
	statePipelining
	// stateMatched is a receive of a large message that is not started yet.
	stateMatched
	// stateTransferring is a receive in the get, put or split protocol.
	stateTransferring
	// stateStopping is a receive that waits for the end of a put, to fail or to fall back.
	stateStopping
	// statePutting is a send that writes into the receiver's memory.
	statePutting
	// statePutDone is a send that has written its chunks, and waits for the CTS.
	statePutDone
	// stateComplete is a request with an unread result.
	stateComplete
)

var stateNames = [...]string{"idle", "posted", "queued", "offered", "withdrawing", "copying", "matched", "transferring", "stopping", "putting", "put done", "complete"}

func (s state) String() string { return stateNames[s] }

// request is a send or a receive. Requests are reused, so that their memory is bounded by
// the highest number in progress at a time.
type request struct {
	pml.Request
	node match.Recv[request]
	m    *Module
	// slot is the index in Module.requests, and generation changes with each use. Together they
	// are the handle that peers return.
	slot, generation uint32

	state  state
	isSend bool
	mode   pml.Mode
	plane  pml.Plane
	c      *comm
	// p is the receiver of a send, or the sender of a receive; nil for AnySource before a match.
	p   *peer
	buf pml.Buffer
	tag int
	// next and prev link a list, or the free list.
	next *request
	prev *request
	// startedAt is set only for hooks.
	startedAt time.Time

	// rndv is the state of the last rendezvous of the request, or nil before the first one. It is
	// reused with the request.
	rndv *rendezvous
}

// requestPool has the memory of requests and unexpected messages.
type requestPool struct {
	// requests are all requests by slot, including free ones.
	requests       []*request
	free           *request
	freeUnexpected *unexpectedMessage
	pool           bufferPool
	// pendingSends counts sends that are not complete.
	pendingSends int
}

// source returns the rank of the peer, or AnySource before a match.
func (r *request) source() int {
	if r.p == nil {
		return pml.AnySource
	}
	return r.p.rank
}

func (r *request) handle() uint64 { return uint64(r.generation)<<32 | uint64(r.slot) }

// newRequest returns a started request, which counts as pending on c. Lock held.
func (m *Module) newRequest(c *comm) *request {
	r := m.takeRequest()
	r.Start()
	r.c = c
	if m.env.Hooks != nil {
		r.startedAt = time.Now()
	}
	c.Pending++
	return r
}

// newCompleteSend returns the request of a send that has completed. Lock held.
func (m *Module) newCompleteSend() *request {
	r := m.takeRequest()
	r.StartDone()
	r.isSend, r.state = true, stateComplete
	return r
}

func (m *Module) takeRequest() *request {
	r := m.free
	if r == nil {
		return m.makeRequest()
	}
	m.free = r.next
	r.next = nil
	return r
}

func (m *Module) makeRequest() *request {
	r := &request{m: m, slot: uint32(len(m.requests))}
	r.node.Owner = r
	r.Init(m.engine, r)
	m.requests = append(m.requests, r)
	return r
}

// lookup returns the request of a handle from a peer, or nil. The handle is untrusted.
func (m *Module) lookup(handle uint64) *request {
	slot := uint32(handle)
	if int64(slot) >= int64(len(m.requests)) {
		return nil
	}
	r := m.requests[slot]
	if r.generation != uint32(handle>>32) || r.state == stateIdle {
		return nil
	}
	return r
}

// finish completes a request and returns the buffer to the user. Lock held.
func (r *request) finish() {
	r.state = stateComplete
	r.buf = pml.Buffer{}
	c := r.c
	if r.isSend {
		r.m.pendingSends--
	}
	ends := c.FinishOperation()
	r.Finish()
	if ends {
		c.leave()
	}
}

// fail completes a request with an error, at once or when its transfer permits. Lock held.
func (r *request) fail(err error) {
	r.Status.Err = r.c.OperationError(r.plane, err)
	if x := r.rndv; x != nil && x.transfer != nil && !x.transfer.abort(r, err) {
		return
	}
	r.endTransfer()
	r.finish()
}

// Release implements pml.Owner.
func (r *request) Release() {
	m := r.m
	r.state = stateIdle
	r.generation++
	r.c, r.p = nil, nil
	r.next = m.free
	m.free = r
}

// First implements pml.Owner. A receive from a known source polls that path first.
func (r *request) First() progress.Source {
	if r.isSend || r.p == nil {
		return nil
	}
	return r.p.proc.receivePath().source
}

// Cancel implements pml.Owner.
func (r *request) Cancel() {
	switch r.state {
	case statePosted:
		r.c.queues[r.plane].Cancel(&r.node)
		r.completeCanceled()
	case stateQueued:
		r.p.proc.sendQueue.remove(r)
		r.p.proc.updateCanSendEager()
		r.completeCanceled()
	case stateOffered:
		// The receiver decides whether the RTS has matched.
		r.state = stateWithdrawing
		r.p.proc.sendControl(newWithdraw(frameWithdraw, r.handle()))
	}
}

func (r *request) completeCanceled() {
	if r.isSend && r.p.hasRefused {
		r.fail(r.m.procs.NotMemberError(r.p.proc.Incarnation))
		return
	}
	r.Status = r.c.WithdrawnStatus(r.plane)
	r.finish()
}

// requestList is a doubly linked list through request.next and prev.
type requestList struct{ head, tail *request }

func (l *requestList) push(r *request) {
	r.next, r.prev = nil, l.tail
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
}

func (l *requestList) pop() *request {
	r := l.head
	l.remove(r)
	return r
}

func (l *requestList) remove(r *request) {
	if r.prev == nil {
		l.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
}
