package cm

import (
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// The states of a request.
type state uint8

const (
	idle       state = iota // in the free list
	held                    // send: waits for the peer's id of the communicator
	sent                    // send: the MTL has it
	posted                  // receive: the MTL has it
	deferred                // receive: waits until queues have been looked through, see pull
	recalled                // receive: is being withdrawn, to wait here, see sweeper
	gathered                // receive: waits until others are withdrawn
	seeking                 // receive: probes once whether its message is here already
	receiving               // receive: has its message, whose contents come
	announced               // send: the MTL has the head, or the receiver, see long.go
	parting                 // send: the MTL has a part
	assembling              // receive: the MTL has the receive of a part
	doubtful                // the network has failed it, see doubt
	confirming              // send: done for the MTL, see unwanted.go
	complete                // done, the user has not taken it yet
	returned                // done and taken, but the MTL still has op
)

var stateNames = [...]string{"idle", "queued", "offered", "posted", "posted", "posted", "posted", "posted", "receiving", "offered", "sending", "receiving", "failed", "offered", "complete", "complete"}

// request is a send or a receive. Requests are made once and used again; their
// memory is bounded by the most that were ever in progress at a time.
type request struct {
	pml.Request
	op   mtl.Op
	m    *Module
	busy bool // op is the MTL's

	state  state
	send   bool
	kept   bool // parts.head has the message of a receive, which may be a head
	mode   pml.Mode
	plane  pml.Plane
	c      *comm
	p      *peer // send: the receiver; receive: the sender, nil for any
	buf    pml.Buffer
	bounce []byte // what the MTL reads or writes in buf's place, if buf has a layout or no room for a head
	parts  *parts // of a message that comes in parts; kept for the next one
	tag    int
	why    error     // of a receive that is being withdrawn, or seeks, and of a doubtful one: what it ends with
	user   bool      // of a receive that is being withdrawn: its user wants it
	steps  int       // of a doubtful one: until it ends
	began  time.Time // if hooks look

	next    *request              // in the free list
	posting uint64                // Of a receive: its number in the order of posting.
	order   uint64                // Of a synchronous send: its number in syncs.sent; 0: it is not tracked.
	node    match.Entry[request]  // of what is held or deferred
	in      *match.Order[request] // of what is held: where
}

// bounceKept is the largest bounce buffer that a request keeps for its next use.
const bounceKept = 64 << 10

// newRequest returns a request of an operation that begins. Lock held.
func (m *Module) newRequest(c *comm) *request {
	r := m.freeRequest()
	r.begin(c)
	return r
}

// begin makes a request pending. Lock held.
func (r *request) begin(c *comm) {
	r.Start()
	r.c = c
	if r.m.env.Hooks != nil {
		r.began = time.Now()
	}
	c.Pending++
}

// sentRequest returns the request of a send that is over. Lock held.
func (m *Module) sentRequest() *request {
	r := m.freeRequest()
	r.StartDone()
	r.send, r.state = true, complete
	return r
}

// freeRequest takes a request from the free list, or makes one.
func (m *Module) freeRequest() *request {
	if m.free == nil {
		m.makeRequest()
	}
	r := m.free
	m.free, r.next = r.next, nil
	r.kept = false
	return r
}

// makeRequest puts a new request into the free list.
func (m *Module) makeRequest() {
	r := &request{m: m, next: m.free}
	r.op.Owner = (*operation)(r)
	r.node.Owner = r
	r.Init(m.engine, r)
	m.requests = append(m.requests, r)
	m.free = r
}

// finish completes a request, whose Status is set. Lock held.
func (r *request) finish() {
	r.state = complete
	r.buf = pml.Buffer{} // the user's again
	c := r.c
	c.Pending--
	if r.send {
		r.m.sends--
		r.untrack()
	}
	r.Finish()
	if c.unwanted > 0 {
		r.m.reaper.mustSettle = true
	}
	c.mayRest()
}

// fail completes a request with an error. Lock held.
func (r *request) fail(err error) {
	r.Status.Err = r.c.Reason(r.plane, err)
	r.finish()
}

// canceled completes a request that was withdrawn.
func (r *request) canceled() {
	r.Status = r.c.Withdrawn(r.plane)
	r.finish()
}

// Release implements pml.Owner.
func (r *request) Release() {
	r.c, r.p, r.why, r.user = nil, nil, nil, false
	if cap(r.bounce) > bounceKept {
		r.bounce = nil // while op is busy the MTL holds it
	}
	if r.busy {
		r.state = returned
		return
	}
	r.state = idle
	r.next = r.m.free
	r.m.free = r
}

// First implements pml.Owner.
func (r *request) First() progress.Source { return r.m.source }

// operation is a request as the MTL sees it.
type operation request

// Done implements mtl.Owner.
func (o *operation) Done(op *mtl.Op) {
	r := (*request)(o)
	if op.Bytes == headSize && (r.state == posted || r.state == recalled) && !r.kept && r.m.keeper != nil {
		r.keepHead()
	}
	if r == r.m.quick {
		r.Set() // who looks sees it
		return
	}
	r.busy = false
	switch r.state {
	case sent:
		r.sendDone(op.Err)
	case seeking:
		if op.Err == nil && op.Found {
			r.receiveClaimed()
		} else {
			r.miss()
			r.fail(r.why)
		}
	case posted:
		r.received(&op.Result)
	case recalled:
		r.recallDone(&op.Result)
	case receiving:
		r.receivedClaimed(&op.Result)
	case announced:
		r.headSent(op.Err)
	case parting:
		r.partSent(op.Err)
	case assembling:
		r.partReceived(&op.Result)
	case returned:
		r.Release()
	}
}

// Cancel implements pml.Owner. A send that the MTL has goes on.
func (r *request) Cancel() {
	switch r.state {
	case posted, recalled:
		r.user = true
		r.m.mtl.Cancel(&r.op)
	case deferred:
		r.unwait()
		r.canceled()
	case gathered:
		r.ungather()
		r.canceled()
	case held:
		r.unhold()
		r.canceled()
	case doubtful:
		r.fail(r.why)
	}
}

// end ends an operation with err, unless it has matched. A send that the MTL has
// ends when the MTL has given it up.
func (r *request) end(err error) {
	switch r.state {
	case posted, recalled, assembling:
		if r.why == nil {
			r.why = err
		}
		r.m.mtl.Cancel(&r.op)
	case announced:
		r.forgetParts()
		r.fail(err)
	case doubtful, confirming:
		r.fail(err)
	case deferred:
		r.unwait()
		r.fail(err)
	case gathered:
		r.ungather()
		r.fail(err)
	case held:
		r.unhold()
		r.fail(err)
	}
}

// hold has a send wait behind others.
func (r *request) hold(in *match.Order[request]) {
	r.in = in
	in.Push(&r.node)
}

// unhold takes it out again.
func (r *request) unhold() { r.in.Remove(&r.node) }

// Abandon implements pml.Abandoner: a send can't be withdrawn.
func (r *request) Abandon() bool { return r.send }
