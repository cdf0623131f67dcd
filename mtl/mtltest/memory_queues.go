package mtltest

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// queues are the matching state of one communicator id.
type queues struct {
	match.Queues[receive, message]
	cid   uint32
	peers map[int]*match.Peer[receive, message]
	// That of the source that was asked for last.
	recent *match.Peer[receive, message]
	source int
}

// inbox are the messages that have not arrived, in their order.
type inbox struct{ head, tail *message }

func (b *inbox) push(msg *message) {
	if b.head == nil {
		b.head = msg
	} else {
		b.tail.next = msg
	}
	b.tail = msg
}

func (b *inbox) pop() { b.head, b.head.next = b.head.next, nil }

// receive is one in progress.
type receive struct {
	slot   uint32   // in memory.receives
	next   *receive // that is idle
	op     *mtl.Op
	buf    []byte
	queues *queues
	node   match.Recv[receive]
	cancel int // the poll in which a cancel takes effect; 0: none
}

// message is on its way, or waits for its receive.
type message struct {
	control  bool
	envelope mtl.Envelope
	data     []byte // own, or the sender's buffer
	own      []byte
	from, to *memory
	op       *mtl.Op // of the sender, who is told when the message has matched; or nil
	sync     bool
	wild     bool     // it has matched a receive or a probe from any source
	orphan   bool     // its sender has closed
	due      int      // the receiver's poll in which it arrives
	next     *message // in an inbox, or of those that nobody knows
	node     match.Message[message]
}

// queue returns the matching state of an id, and that of the source unless it is
// AnySource.
func (m *memory) queue(cid uint32, source int) (*queues, *match.Peer[receive, message]) {
	if q := m.recent; q.cid == cid && q.source == source && q.recent != nil {
		return q, q.recent
	}
	return m.lookUp(cid, source)
}

// sourceOf returns the number that identifies the source of a receive or a probe.
func (m *memory) sourceOf(from mtl.Endpoint, e mtl.Envelope) int {
	if m.opt.ByProcess && e.Source != mtl.AnySource {
		return m.peers[from].module.endpoint(e)
	}
	return int(e.Source)
}

// endpoint returns the number that identifies an endpoint of this process.
func (m *memory) endpoint(e mtl.Envelope) int { return m.address<<16 | int(e.Endpoint) }

// lookUp is queue where another one was asked for last.
func (m *memory) lookUp(cid uint32, source int) (*queues, *match.Peer[receive, message]) {
	q := m.queues[cid]
	if q == nil {
		q = &queues{cid: cid, peers: map[int]*match.Peer[receive, message]{}}
		m.queues[cid] = q
	}
	p := q.peers[source]
	if p == nil && source != mtl.AnySource {
		p = new(match.Peer[receive, message])
		q.peers[source] = p
	}
	m.recent, q.recent, q.source = q, p, source
	return q, p
}
