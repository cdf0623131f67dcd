package ofi

import (
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// A provider holds a limited number of receives. The receives beyond the limit wait in an overflow
// queue for each communicator id, because only receives of one id are ordered. An unexpected message in
// the provider has matched none of the provider's receives. A peek claims the first such message of
// the id, from any source and with any tag, and package match finds the receive of the overflow queue
// that it matches. A message without a match stays claimed in the queue for a later receive or
// probe (docs/decisions/overflow-receives.md).
//
// So a receive that never matches blocks neither later receives of its id nor those of
// other communicators and planes. A message, a receive and a probe take constant time each, however many
// operations wait.

// receiveOverflow holds the operations that the provider has no space for.
type receiveOverflow struct {
	queuesByCID map[uint32]*overflowQueue
	// readyQueues lists the queues that have receives.
	readyQueues []*overflowQueue
	// readyCursor is the index in readyQueues of the queue that advanced last.
	readyCursor int
	// spareQueue is an empty queue for the next id, or nil.
	spareQueue *overflowQueue
	// urgentReceives holds control receives and receives of claimed messages. They go before the queues.
	urgentReceives fifo
	// deferredReceives holds receives of claimed messages for which mustDefer is true.
	deferredReceives fifo
	// defersLong is set for a provider with the quirk DeferLongReceives.
	defersLong bool
}

func (o *receiveOverflow) hasReceives() bool {
	return len(o.readyQueues) > 0 || o.urgentReceives.head != nil || o.deferredReceives.head != nil
}

// reservedReceives is the number of the provider's receives that are reserved for claimed messages.
const reservedReceives = 16

// queuesPerPoll is the largest number of overflow queues that one Poll advances.
const queuesPerPoll = 4

// advanceOverflow posts waiting receives as far as the provider has space, and starts peeks for the
// others.
func (m *module) advanceOverflow() {
	m.advanceUrgent()
	deferred := m.receiveOverflow.deferredReceives
	m.receiveOverflow.deferredReceives = fifo{}
	for s := deferred.head; s != nil; s = deferred.head {
		if deferred.pop(); !m.abandonIfLost(s) {
			m.handleStartResult(s, m.startClaimedReceive(s))
		}
	}
	o := &m.receiveOverflow
	for range min(queuesPerPoll, len(o.readyQueues)) {
		if o.readyCursor++; o.readyCursor >= len(o.readyQueues) {
			o.readyCursor = 0
		}
		if len(o.readyQueues) > 0 {
			m.advanceQueue(o.readyQueues[o.readyCursor])
		}
	}
}

// advanceUrgent posts the urgent receives until the provider refuses one.
func (m *module) advanceUrgent() {
	urgent := &m.receiveOverflow.urgentReceives
	for s := urgent.head; s != nil; s = urgent.head {
		if s.Kind == base.SlotClaimed {
			if m.abandonIfLost(s) {
				urgent.pop()
				continue
			}
			if m.mustDefer(s.Peer, int(s.claimedBytes)) {
				urgent.pop()
				m.receiveOverflow.deferredReceives.push(s)
				continue
			}
		}
		code := m.postOp(s)
		if code == libfabric.Again {
			return
		}
		urgent.pop()
		m.handleStartResult(s, code)
	}
}

// startUrgent starts a receive, or queues it before those of the overflow queues.
func (m *module) startUrgent(s *slot) libfabric.Errno {
	code := m.postOp(s)
	if code == libfabric.Again {
		m.receiveOverflow.urgentReceives.push(s)
		return 0
	}
	return code
}

// startClaimedReceive is startUrgent for a claimed message, whose receive may be deferred.
func (m *module) startClaimedReceive(s *slot) libfabric.Errno {
	if m.mustDefer(s.Peer, int(s.claimedBytes)) {
		m.receiveOverflow.deferredReceives.push(s)
		return 0
	}
	return m.startUrgent(s)
}

// mustDefer reports whether a receive of length bytes from a peer, or from any if that is NoEndpoint, must not
// be posted now. A peer that refuses sends may have failed before the launcher reports it, and
// some providers crash if they fetch the rest of a message while they reconnect (quirk
// DeferLongReceives).
func (m *module) mustDefer(from mtl.Endpoint, length int) bool {
	if !m.receiveOverflow.defersLong || int64(length) <= m.Capabilities.Eager {
		return false
	}
	if from != mtl.NoEndpoint {
		return m.peerTable.peersByEndpoint[from].isRefusing
	}
	return m.peerTable.refusingCount > 0
}

// handleStartResult ends a queued receive that the provider rejected. A code of 0 is no error.
func (m *module) handleStartResult(s *slot, code libfabric.Errno) {
	if code == 0 {
		return
	}
	err := m.callError("receive", s.Peer, code)
	if s.Kind == base.SlotControlReceive {
		m.failModule(err)
		return
	}
	m.endOp(s, mtl.Result{Err: err})
}

// advanceQueue posts the receives of a queue until the provider refuses one, and then starts a peek.
// While a peek is in progress no receive is posted, because the peek may claim a message of
// the oldest one.
func (m *module) advanceQueue(q *overflowQueue) {
	if q.isPeeking {
		return
	}
	for s := q.oldestReceive(); s != nil; s = q.oldestReceive() {
		code := m.postOp(s)
		if code == libfabric.Again {
			break
		}
		q.removeReceive(s)
		m.handleStartResult(s, code)
	}
	if q.oldestReceive() != nil {
		m.startPeek(q)
	}
	m.updateReady(q)
}

// joinQueue serves a receive or a probe from the claimed messages of a queue, or appends it
// behind the operations that wait there. If it returns false the operation goes to the provider.
func (m *module) joinQueue(q *overflowQueue, s *slot) (joined bool) {
	if c := q.findMessage(s); c != nil {
		m.serveMessage(q, s, c)
		m.updateReady(q)
		return true
	}
	if !q.isPeeking && q.oldestReceive() == nil {
		return false
	}
	if s.Kind == base.SlotReceive {
		m.enqueueReceive(q, s)
		return true
	}
	s.peeksBefore = q.peekCount
	q.queuedProbes.push(s)
	if !q.isPeeking {
		m.startPeek(q)
	}
	m.updateReady(q)
	return true
}

func (m *module) enqueueReceive(q *overflowQueue, s *slot) {
	q.addReceive(s)
	m.updateReady(q)
}

// startPeek starts to claim the next message of a queue. If that is not possible now, the receives wait for another
// Poll, and the probes complete without a message, as in startProbe.
func (m *module) startPeek(q *overflowQueue) {
	q.peekCount++
	switch code := m.postPeek(q); code {
	case 0:
		q.isPeeking = true
	case libfabric.Again, libfabric.NoMessage:
		m.completeProbes(q, mtl.Result{})
	default:
		m.failPeek(q, m.callError("probe", mtl.NoEndpoint, code))
	}
}

// failPeek ends the probes that wait for a peek, and the oldest receive, so that each error of the
// provider ends at least one operation.
func (m *module) failPeek(q *overflowQueue, err error) {
	m.completeProbes(q, mtl.Result{Err: err})
	if r := q.oldestReceive(); r != nil {
		q.removeReceive(r)
		m.endOp(r, mtl.Result{Err: err})
	}
}

func (m *module) postPeek(q *overflowQueue) libfabric.Errno {
	if m.postedCounts.operations >= m.postedCounts.queueLimits.maxOperations || m.offloader.activeCall != nil || m.offloader.drainsProbes {
		return libfabric.Again
	}
	s, err := m.takeSlot(slotPeek, nil, nil)
	if err != nil {
		return libfabric.NoMemory
	}
	s.Peer, s.addressIndex = mtl.NoEndpoint, libfabric.AnyAddress
	s.tag, s.bits = m.tagLayout.receive(mtl.Envelope{CID: q.cid, Source: mtl.AnySource, Tag: mtl.AnyTag})
	code := m.ep.Peek(s.Number, s.addressIndex, s.tag, s.bits, libfabric.Claim)
	if code != 0 {
		m.releaseSlot(s)
		return code
	}
	s.IsPosted = true
	m.postedCounts.operations++
	m.postedCounts.probes++
	return 0
}

// completePeek handles the completion of a peek.
func (m *module) completePeek(s *slot, ev *libfabric.Event) {
	q := m.receiveOverflow.queuesByCID[m.tagLayout.cidOf(s.tag)]
	var r mtl.Result
	if ev.Err == 0 {
		r = m.recordClaim(s, ev) // The upcall may post and cancel receives.
	} else {
		m.releaseSlot(s)
	}
	q.isPeeking = false
	switch ev.Err {
	case 0:
		m.placeClaimed(q, s, r)
	case libfabric.NoMessage:
		m.completeProbes(q, mtl.Result{})
	default:
		m.failPeek(q, m.eventError("receive", mtl.NoEndpoint, ev))
	}
	if q.queuedProbes.head != nil && !q.isPeeking {
		m.startPeek(q)
	}
	m.updateReady(q)
}

// placeClaimed passes a claimed message to the first receive of the queue that matches it. Otherwise
// it adds the message to the queue, and serves the probes that match.
func (m *module) placeClaimed(q *overflowQueue, c *slot, r mtl.Result) {
	if s := q.matchMessage(r); s != nil {
		m.receiveInto(s, c)
		return
	}
	q.addMessage(c, r)
	var remaining fifo // Short: a goroutine probes for one message at a time.
	for p := q.queuedProbes.head; p != nil; p = q.queuedProbes.head {
		q.queuedProbes.pop()
		if found := q.findMessage(p); found != nil {
			m.serveMessage(q, p, found)
		} else if p.Kind == slotProbe && q.peekCount-p.peeksBefore >= maxPeeksPerProbe {
			m.endOp(p, mtl.Result{})
		} else {
			remaining.push(p)
		}
	}
	q.queuedProbes = remaining
}

// maxPeeksPerProbe is the number of peeks after which a probe without claim completes without a message, though
// one may follow, so that a stream of other messages does not block it. A claiming probe may be the
// caller's last one and waits.
const maxPeeksPerProbe = 4096

// completeProbes ends the probes that were waiting when the current peek started.
func (m *module) completeProbes(q *overflowQueue, r mtl.Result) {
	for p := q.queuedProbes.head; p != nil && p.peeksBefore < q.peekCount; p = q.queuedProbes.head {
		q.queuedProbes.pop()
		m.endOp(p, r)
	}
}

// serveMessage completes a probe, or continues a receive, with a claimed message of the queue.
func (m *module) serveMessage(q *overflowQueue, s, c *slot) {
	found := mtl.Result{Found: true, Source: int32(c.queueEntry.Source), Tag: int32(c.queueEntry.Tag), Bytes: c.claimedBytes}
	switch s.Kind {
	case base.SlotReceive:
		q.removeMessage(c)
		m.receiveInto(s, c)
	case slotClaimingProbe:
		q.removeMessage(c)
		if s.Peer != mtl.NoEndpoint {
			c.Peer = s.Peer
		}
		s.Op.Slot = c.Number
		m.endOp(s, found)
	default:
		m.endOp(s, found)
	}
}

// receiveInto continues a receive in the slot of its claimed message.
func (m *module) receiveInto(s, c *slot) {
	if s.Peer != mtl.NoEndpoint {
		c.Peer = s.Peer
	}
	op := s.Op
	err := m.receiveClaimed(c, op, s.ReceiveBuffer())
	m.releaseSlot(s)
	if err != nil {
		m.QueueResult(op, mtl.Result{Err: err})
	}
}
