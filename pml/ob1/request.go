package ob1

import (
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1/choose"
	"github.com/ferrympi/ferry/progress"
)

// The states of a request.
type state uint8

const (
	idle      state = iota // in the free list
	posted                 // receive: waits for a message
	queued                 // send: nothing has gone out yet
	rtsSent                // send: the RTS is out, not accepted
	withdrawn              // send: canceled, and the receiver has been asked to give the RTS back
	copying                // accepted: payload is on its way
	matched                // receive: its turn to get the payload is to come
	reading                // receive: payload is read out of the sender's memory, or the sender writes it
	ending                 // receive: the sender is writing still, and must not
	sharing                // send: payload is written into the receiver's memory
	shared                 // send: that is over, and the receiver will say so
	complete               // done, the user has not taken it yet
)

var stateNames = [...]string{"idle", "posted", "queued", "offered", "withdrawing", "copying", "matched", "reading", "ending", "writing", "written", "complete"}

// request is a send or a receive. Requests are made once and used again; their
// memory is bounded by the most that were ever in progress at a time.
type request struct {
	pml.Request
	node match.Recv[request] // in the posted queue
	m    *Module
	// slot and turn make the handle that a peer sends back: the place in
	// Module.requests, and a count that changes with each use.
	slot, turn uint32

	state state
	send  bool
	mode  pml.Mode
	plane pml.Plane
	c     *comm
	p     *peer // send: the receiver; receive: the sender, nil for any until matched
	buf   pml.Buffer
	tag   int
	moved int64     // bytes of payload copied
	lent  int       // frames that still read payload where it lies
	next  *request  // in a list, or the free list
	prev  *request  // in a list
	limit int64     // bytes of payload that will be
	far   uint64    // the peer's handle, once accepted
	began time.Time // if hooks look

	// Where the message of a receive lies, while it is read from there; or the receiver's
	// memory, while it is written there.
	remote btl.Remote
	reader btl.RemoteReader

	depth  uint8  // alone, or in a window
	passes uint64 // handle of the send that a message passes

	// Of a receive that takes its turn, see ways.go.
	way      choose.Way
	possible choose.Set    // 0: not considered yet
	learnt   *learnt       // of its kind
	counted  bool          // it is one of those under way
	later    choose.Way    // that of the next such message
	spoilt   bool          // its time says nothing
	follows  bool          // its time begins with the end of the message before
	start    time.Duration // else: when it matched
	stored   time.Duration // how long the part took to be put in its place
	part     []byte        // that came with the RTS and is not in its place yet, the BTL's
	share    btl.Share     // into which the sender writes
	base     int64         // where in the message that begins
	at       int64         // where the piece is that is read now
	piece    int           // what is left of it
	fallBack bool          // as frames, when the share is over

	// Of a send.
	lines     lines // for its frames
	offeredAs btl.Memory
	described bool
	writer    bool // this process can write
}

// source is the rank of the other side, AnySource while that is not known.
func (r *request) source() int {
	if r.p == nil {
		return pml.AnySource
	}
	return r.p.rank
}

func (r *request) handle() uint64 { return uint64(r.turn)<<32 | uint64(r.slot) }

// newRequest takes a request from the free list, or makes one. Lock held.
func (m *Module) newRequest(c *comm) *request {
	r := m.freeRequest()
	r.Start()
	r.c = c
	r.moved, r.lent = 0, 0
	if m.env.Hooks != nil {
		r.began = time.Now()
	}
	c.Pending++
	return r
}

// sentRequest returns the request of a send that is over. Lock held.
func (m *Module) sentRequest() *request {
	r := m.freeRequest()
	r.StartDone()
	r.send, r.state = true, complete
	return r
}

func (m *Module) freeRequest() *request {
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

// lookup finds the request of a handle that came from a peer, or nil.
func (m *Module) lookup(handle uint64) *request {
	slot := uint32(handle)
	if int64(slot) >= int64(len(m.requests)) {
		return nil
	}
	r := m.requests[slot]
	if r.turn != uint32(handle>>32) || r.state == idle {
		return nil
	}
	return r
}

// finish completes a request. Lock held.
func (r *request) finish() {
	r.state = complete
	r.buf = pml.Buffer{} // the user's again
	c := r.c
	if r.send {
		r.m.sends--
	}
	ends := c.Done()
	r.Finish()
	if ends {
		c.part()
	}
}

// fail completes a request with an error. Lock held.
func (r *request) fail(err error) {
	r.Status.Err = r.c.Reason(r.plane, err)
	if r.share != nil && !r.endShare(err) {
		return
	}
	r.turnOver()
	r.finish()
}

// Release implements pml.Owner.
func (r *request) Release() {
	m := r.m
	r.state = idle
	r.turn++
	r.c, r.p = nil, nil
	r.next = m.free
	m.free = r
}

// First implements pml.Owner: a receive from a known source polls that path
// first.
func (r *request) First() progress.Source {
	if r.send || r.p == nil {
		return nil
	}
	return r.p.proc.inPath().source
}

// Cancel implements pml.Owner.
func (r *request) Cancel() {
	switch r.state {
	case posted:
		r.c.queues[r.plane].Cancel(&r.node)
		r.canceled()
	case queued:
		r.p.proc.queue.remove(r)
		r.p.proc.settle()
		r.canceled()
	case rtsSent:
		// The receiver decides: it accepts, or gives the RTS back.
		r.state = withdrawn
		r.p.proc.control(withdrawFrame(frameWithdraw, r.handle()))
	}
}

func (r *request) canceled() {
	if r.send && r.p.refused {
		r.fail(r.m.procs.NotMember(r.p.proc.Life))
		return
	}
	r.Status = r.c.Withdrawn(r.plane)
	r.finish()
}

// requestList is a queue of sends.
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
