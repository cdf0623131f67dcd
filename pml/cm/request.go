package cm

import (
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// state is the state of a request.
type state uint8

const (
	// idle requests are in the free list.
	idle state = iota
	// held sends wait for the peer's id of the communicator.
	held
	// submitted sends are the MTL's.
	submitted
	// posted receives are the MTL's.
	posted
	// deferred receives wait for the end of a pull or a sweep.
	deferred
	// recalled receives are being withdrawn from the MTL, see sweeper.
	recalled
	// gathered receives wait for the withdrawal of others.
	gathered
	// seeking receives probe once for a message that has come already.
	seeking
	// receiving receives have claimed their message, whose contents are coming.
	receiving
	// awaitingCTS sends have given their RTS to the MTL, and wait for the receiver.
	awaitingCTS
	// sendingFragment sends have a fragment in the MTL.
	sendingFragment
	// receivingFragment receives have a fragment posted in the MTL.
	receivingFragment
	// doubtful requests were failed by the network, see doubt.
	doubtful
	// confirming sends are complete for the MTL, and wait for reports, see unreceived.go.
	confirming
	// complete requests wait for their user.
	complete
	// returned requests were released while the MTL has op.
	returned
)

var stateNames = [...]string{"idle", "queued", "offered", "posted", "posted", "posted", "posted", "posted", "receiving", "offered", "sending", "receiving", "failed", "offered", "complete", "complete"}

// request is a send or a receive. Requests are never freed, so their memory is bounded by the
// largest number that was in progress at one time.
type request struct {
	pml.Request
	op mtl.Op
	m  *Module
	// isOpBusy is set while the MTL has op.
	isOpBusy bool

	state  state
	isSend bool
	// hasPrefix is set if fragments.prefix has the prefix of a received message.
	hasPrefix bool
	mode      pml.Mode
	plane     pml.Plane
	c         *comm
	// p is the receiver of a send or the sender of a receive, nil for any source.
	p       *peer
	userBuf pml.Buffer
	// bounceBuf replaces userBuf in the MTL if userBuf has a layout, or is too short for an RTS.
	bounceBuf []byte
	// fragments is kept for the next use of the request.
	fragments *fragments
	tag       int
	pendingEnd
	// startedAt is set if the module has hooks.
	startedAt time.Time

	nextFree *request
	requestOrder
}

// pendingEnd is the end of a request that the MTL still has, or that is doubtful.
type pendingEnd struct {
	// endCause is the error of a withdrawn, seeking or doubtful request at its end.
	endCause error
	// isCanceled is set if the user has canceled a receive that the MTL has.
	isCanceled bool
	// doubtStepsLeft is the wait of a doubtful request, in steps.
	doubtStepsLeft int
}

// requestOrder is the order of a request among others.
type requestOrder struct {
	// postingNumber is a receive's number in the order of posting.
	postingNumber uint64
	// syncSendNumber is the number of a synchronous send in syncSends.sentByTag, 0 if it is not
	// tracked.
	syncSendNumber uint64
	// queueEntry links a held or deferred request. holdingQueue is the queue of a held one.
	queueEntry   match.Entry[request]
	holdingQueue *match.Order[request]
}

// requestPool has the memory of requests, messages and control messages.
type requestPool struct {
	// allRequests includes free ones.
	allRequests  []*request
	freeRequests *request
	// directRecv is the request of the next recvDirect, nil if there is none. While
	// it has a communicator, it counts as posted.
	directRecv      *request
	directRecvCalls uint
	freeMessages    *message
	freeControls    *controlSend
	// pendingSends counts sends that are not complete.
	pendingSends      int
	lastPostingNumber uint64
}

// maxBounceKept is the largest bounce buffer that a request keeps for its next use, in bytes.
const maxBounceKept = 64 << 10

// newRequest returns a started request. Lock held.
func (m *Module) newRequest(c *comm) *request {
	r := m.takeFreeRequest()
	r.start(c)
	return r
}

// start makes a request pending. Lock held.
func (r *request) start(c *comm) {
	r.Start()
	r.c = c
	if r.m.env.Hooks != nil {
		r.startedAt = time.Now()
	}
	c.Pending++
}

// newCompleteSend returns the request of a send that is complete. Lock held.
func (m *Module) newCompleteSend() *request {
	r := m.takeFreeRequest()
	r.StartDone()
	r.isSend, r.state = true, complete
	return r
}

// takeFreeRequest returns a request from the free list, which it refills if necessary.
func (m *Module) takeFreeRequest() *request {
	if m.freeRequests == nil {
		m.addFreeRequest()
	}
	r := m.freeRequests
	m.freeRequests, r.nextFree = r.nextFree, nil
	r.hasPrefix = false
	return r
}

// addFreeRequest adds a new request to the free list.
func (m *Module) addFreeRequest() {
	r := &request{m: m, nextFree: m.freeRequests}
	r.op.Owner = (*operation)(r)
	r.queueEntry.Owner = r
	r.Init(m.engine, r)
	m.allRequests = append(m.allRequests, r)
	m.freeRequests = r
}

// finish completes a request, whose Status is set. Lock held.
func (r *request) finish() {
	r.state = complete
	r.userBuf = pml.Buffer{} // The user owns it again.
	c := r.c
	c.Pending--
	if r.isSend {
		r.m.pendingSends--
		r.untrackSync()
	}
	r.Finish()
	if c.heldMessageCount > 0 {
		r.m.reaper.mustSettle = true
	}
	c.advanceClose()
}

// fail completes a request with an error. Lock held.
func (r *request) fail(err error) {
	r.Status.Err = r.c.OperationError(r.plane, err)
	r.finish()
}

// finishCanceled completes a request that was withdrawn.
func (r *request) finishCanceled() {
	r.Status = r.c.WithdrawnStatus(r.plane)
	r.finish()
}

// Release implements pml.Owner.
func (r *request) Release() {
	r.c, r.p, r.endCause, r.isCanceled = nil, nil, nil, false
	if cap(r.bounceBuf) > maxBounceKept {
		r.bounceBuf = nil // A busy op keeps it alive.
	}
	if r.isOpBusy {
		r.state = returned
		return
	}
	r.state = idle
	r.nextFree = r.m.freeRequests
	r.m.freeRequests = r
}

// First implements pml.Owner.
func (r *request) First() progress.Source { return r.m.pollSource }

// operation is the mtl.Owner of a request's op.
type operation request

// Done implements mtl.Owner.
func (o *operation) Done(op *mtl.Op) {
	r := (*request)(o)
	if op.Bytes == rtsSize && (r.state == posted || r.state == recalled) && !r.hasPrefix && r.m.prefixKeeper != nil {
		r.savePrefix()
	}
	if r == r.m.directRecv {
		r.Set() // Only recvDirect reads it.
		return
	}
	r.isOpBusy = false
	switch r.state {
	case submitted:
		r.sendDone(op.Err)
	case seeking:
		if op.Err == nil && op.Found {
			r.receiveClaimed()
		} else {
			r.recordMissed()
			r.fail(r.endCause)
		}
	case posted:
		r.recvDone(&op.Result)
	case recalled:
		r.recallDone(&op.Result)
	case receiving:
		r.receivedClaimed(&op.Result)
	case awaitingCTS:
		r.rtsSent(op.Err)
	case sendingFragment:
		r.fragmentSent(op.Err)
	case receivingFragment:
		r.fragmentReceived(&op.Result)
	case returned:
		r.Release()
	}
}

// Cancel implements pml.Owner. A submitted send goes on.
func (r *request) Cancel() {
	switch r.state {
	case posted, recalled:
		r.isCanceled = true
		r.m.mtl.Cancel(&r.op)
	case deferred:
		r.undefer()
		r.finishCanceled()
	case gathered:
		r.ungather()
		r.finishCanceled()
	case held:
		r.dequeue()
		r.finishCanceled()
	case doubtful:
		r.fail(r.endCause)
	}
}

// abort ends an operation with err, unless it has matched. An operation of the MTL ends when the
// MTL completes it.
func (r *request) abort(err error) {
	switch r.state {
	case posted, recalled, receivingFragment:
		if r.endCause == nil {
			r.endCause = err
		}
		r.m.mtl.Cancel(&r.op)
	case awaitingCTS:
		r.forgetFragments()
		r.fail(err)
	case doubtful, confirming:
		r.fail(err)
	case deferred:
		r.undefer()
		r.fail(err)
	case gathered:
		r.ungather()
		r.fail(err)
	case held:
		r.dequeue()
		r.fail(err)
	}
}

// enqueue holds a send behind others.
func (r *request) enqueue(in *match.Order[request]) {
	r.holdingQueue = in
	in.Push(&r.queueEntry)
}

// dequeue removes a held send from its queue.
func (r *request) dequeue() { r.holdingQueue.Remove(&r.queueEntry) }

// Abandon implements pml.Abandoner. Sends cannot be withdrawn.
func (r *request) Abandon() bool { return r.isSend }
