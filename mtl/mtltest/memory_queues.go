package mtltest

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// idQueues contain the matching state of a communicator id.
type idQueues struct {
	match.Queues[receive, message]
	cid         uint32
	peersByRank map[int]*match.Peer[receive, message]
	// recentPeer is the peer of recentSource, the last source of findQueues.
	recentPeer   *match.Peer[receive, message]
	recentSource int
}

// inbox contains the messages that have not arrived, in order.
type inbox struct{ head, tail *message }

func (b *inbox) push(msg *message) {
	if b.head == nil {
		b.head = msg
	} else {
		b.tail.nextMessage = msg
	}
	b.tail = msg
}

func (b *inbox) pop() { b.head, b.head.nextMessage = b.head.nextMessage, nil }

// receive is a receive in progress, or an idle one without an op.
type receive struct {
	slotIndex uint32 // in memoryModule.receivesBySlot
	nextIdle  *receive
	op        *mtl.Op
	buf       []byte
	idQueues  *idQueues
	queueNode match.Recv[receive]
	// cancelAt is the number of the poll that executes a cancel, or 0.
	cancelAt int
}

// message is a message in flight, or an unexpected one.
type message struct {
	isControl bool
	envelope  mtl.Envelope
	// data is ownData or the sender's buffer.
	data     []byte
	ownData  []byte
	from, to *memoryModule
	// sendOp is the send in progress, or nil.
	sendOp *mtl.Op
	isSync bool
	// matchedAnySource is set if the message has matched a receive or a probe from any source.
	matchedAnySource bool
	// isOrphan is set if the sender has closed.
	isOrphan bool
	// dueAt is the poll of the receiver in which the message arrives.
	dueAt       int
	nextMessage *message // in an inbox or in Memory.freeMessages
	queueNode   match.Message[message]
}

// queuesFor returns the matching state of an id, and of the source unless it is AnySource.
func (m *memoryModule) queuesFor(cid uint32, source int) (*idQueues, *match.Peer[receive, message]) {
	if q := m.recentQueues; q.cid == cid && q.recentSource == source && q.recentPeer != nil {
		return q, q.recentPeer
	}
	return m.findQueues(cid, source)
}

// sourceIDOf returns the number that identifies the source of a receive or a probe.
func (m *memoryModule) sourceIDOf(from mtl.Endpoint, e mtl.Envelope) int {
	if m.opt.ByProcess && e.Source != mtl.AnySource {
		return m.peersByEndpoint[from].module.sourceID(e)
	}
	return int(e.Source)
}

// sourceID returns the number that identifies an endpoint of this process.
func (m *memoryModule) sourceID(e mtl.Envelope) int { return m.address<<16 | int(e.Endpoint) }

// findQueues is queuesFor without the cache.
func (m *memoryModule) findQueues(cid uint32, source int) (*idQueues, *match.Peer[receive, message]) {
	q := m.queuesByCID[cid]
	if q == nil {
		q = &idQueues{cid: cid, peersByRank: map[int]*match.Peer[receive, message]{}}
		m.queuesByCID[cid] = q
	}
	p := q.peersByRank[source]
	if p == nil && source != mtl.AnySource {
		p = new(match.Peer[receive, message])
		q.peersByRank[source] = p
	}
	m.recentQueues, q.recentPeer, q.recentSource = q, p, source
	return q, p
}
