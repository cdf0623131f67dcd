package ofi

import (
	"runtime"
	"time"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// slotKind is the kind of operation that uses a slot.
type slotKind uint8

const (
	slotUnused slotKind = iota
	slotSend
	slotSyncSend
	slotControl
	slotSyncAck
	// A frame behind injected messages.
	slotFlush
	// A posted send to a forgotten peer, or a claimed message that is lost.
	slotAbandoned
	slotReceive
	slotProbe
	slotClaimingProbe
	// A claimed message, and later its receive.
	slotClaimed
	// A claiming probe for any message of an overflow queue.
	slotPeek
	slotControlReceive
)

func (k slotKind) isSend() bool  { return k >= slotSend && k <= slotFlush }
func (k slotKind) isProbe() bool { return k == slotProbe || k == slotClaimingProbe || k == slotPeek }

// slot is an operation that libfabric holds, or that waits for space there.
type slot struct {
	number uint32
	kind   slotKind
	// isPosted is set while libfabric holds the operation.
	isPosted bool
	// isBufferFree is set for a synchronous send that has completed and may be unacked.
	isBufferFree bool
	isAcked      bool
	isCanceled   bool
	op           *mtl.Op
	buf          []byte
	// userBuf is the destination of a message that arrives in bounceBuf; otherwise nil.
	userBuf []byte
	// bounceBuf is pinned until Close.
	bounceBuf *[maxBounced]byte
	// frameBuf is reused for the control frames of this slot.
	frameBuf []byte
	pins     runtime.Pinner

	// peer is the destination or source; NoEndpoint for any source.
	peer    mtl.Endpoint
	address uint64
	tag     uint64
	// bits is the completion data of a send, or the tag bits that a receive ignores.
	bits  uint64
	flags libfabric.Kind
	// claimedBytes is the length of a claimed message.
	claimedBytes int64
	// peeksBefore is the queue's peekCount when a probe joined the queue.
	peeksBefore uint64
	// region is the registration that libfabric uses for this slot, or nil.
	region *libfabric.Region
	// ownsRegion is set if region ends with the operation.
	ownsRegion bool
	// queuedAt is set for a blocked flush frame.
	queuedAt time.Time
	next     *slot // in a fifo
	// node links the slot in an overflow queue or among the unacked sends.
	node match.Entry[slot]
}

// maxBounced is the longest receive that uses a bounce buffer. The copy is cheaper than pinning and
// unpinning the user's buffer, which takes 500 instructions, 36 ns.
const maxBounced = 64

// isReceiving reports whether libfabric may write into the buffer of s.
func (s *slot) isReceiving() bool {
	return s.isPosted && (s.kind == slotReceive || s.kind == slotClaimed || s.kind == slotPeek)
}

// setReceiveBuffer sets the destination of a receive: the bounce buffer if buf is short, otherwise buf, which
// it pins.
func (s *slot) setReceiveBuffer(buf []byte) {
	if len(buf) <= maxBounced {
		s.userBuf, s.buf = buf, s.bounceBuf[:len(buf)]
		return
	}
	s.buf = buf
	s.pins.Pin(&buf[0])
}

// receiveBuffer returns the buffer that was passed to setReceiveBuffer.
func (s *slot) receiveBuffer() []byte {
	if len(s.buf) <= maxBounced {
		return s.userBuf
	}
	return s.buf
}

// fifo is a list of slots.
type fifo struct{ head, tail *slot }

func (f *fifo) push(s *slot) {
	s.next = nil
	if f.tail == nil {
		f.head = s
	} else {
		f.tail.next = s
	}
	f.tail = s
}

func (f *fifo) pushFirst(s *slot) {
	if s.next = f.head; f.head == nil {
		f.tail = s
	}
	f.head = s
}

func (f *fifo) pop() {
	if f.head = f.head.next; f.head == nil {
		f.tail = nil
	}
}

// slotTable holds the slots of a module.
type slotTable struct {
	all  []*slot // by slot number
	free []uint32
	// activeSends counts the slots of sends of any kind.
	activeSends int
}

// takeSlot returns a slot for an operation on buf. It pins buf unless that is a short receive.
func (m *module) takeSlot(k slotKind, op *mtl.Op, buf []byte) (*slot, error) {
	t := &m.slots
	if len(t.free) == 0 {
		if err := m.growSlots(); err != nil {
			return nil, err
		}
	}
	s := t.all[t.free[len(t.free)-1]]
	t.free = t.free[:len(t.free)-1]
	s.kind, s.op, s.buf = k, op, buf
	if k.isSend() {
		t.activeSends++
	}
	if op != nil {
		op.Slot = s.number
	}
	if k == slotReceive {
		s.setReceiveBuffer(buf)
	} else if len(buf) > 0 {
		s.pins.Pin(&buf[0])
	}
	return s, nil
}

func (m *module) growSlots() error {
	t := &m.slots
	n, err := m.ep.AddSlots()
	if err != nil {
		return err
	}
	added := make([]slot, n-len(t.all))
	bounce := make([][maxBounced]byte, len(added))
	m.pins.Pin(&bounce[0])
	for i := range added {
		s := &added[len(added)-1-i] // takeSlot returns low numbers first.
		s.number, s.bounceBuf, s.node.Owner = uint32(n-1-i), &bounce[i], s
		t.free = append(t.free, s.number)
	}
	for i := range added {
		t.all = append(t.all, &added[i])
	}
	return nil
}

// postOp passes an operation to libfabric. It returns libfabric.Again if there is no space. An
// injected control frame has left when it returns, and isPosted stays false.
func (m *module) postOp(s *slot) (code libfabric.Errno) {
	if !m.mayPost(s) {
		return libfabric.Again
	}
	if mustWait, code := m.deferForContact(s); mustWait {
		return libfabric.Again
	} else if code != 0 {
		return code
	}
	if m.memory.isRequired || len(m.memory.regions) > 0 || s.region != nil {
		if err := m.attachRegion(s); err != nil {
			m.env.Logger.Error("mtl ofi: memory registration failed", "provider", m.description.Provider, "err", err)
			return libfabric.NoMemory
		}
	}
	switch s.kind {
	case slotSend, slotSyncSend:
		code = m.ep.TSend(s.number, s.buf, s.address, s.tag, s.bits, s.flags)
	case slotControl, slotSyncAck:
		// The provider may have no space for a send until the peer receives messages, and the peer may
		// wait for this frame before it does. Injection needs no space.
		if len(s.buf) <= m.caps.Inject && m.ep.Send(0, s.buf, s.address, libfabric.Inject) == 0 {
			return 0
		}
		fallthrough
	case slotFlush:
		code = m.ep.Send(s.number, s.buf, s.address, 0)
	case slotReceive, slotClaimed:
		code = m.ep.TRecv(s.number, s.buf, s.address, s.tag, s.bits, s.flags)
	case slotProbe, slotClaimingProbe:
		code = m.ep.Peek(s.number, s.address, s.tag, s.bits, s.flags)
	case slotControlReceive:
		code = m.ep.Recv(s.number, s.buf)
	}
	if code == 0 {
		m.countPosted(s)
	}
	return code
}

// mayPost reports whether the limits of the module permit to post an operation now.
func (m *module) mayPost(s *slot) bool {
	switch {
	case m.posted.operations >= m.posted.limits.operations:
		return false
	case s.kind == slotReceive:
		return m.posted.receives < m.posted.limits.receives && !m.mustDefer(s.peer, len(s.buf))
	case s.kind.isProbe():
		return !m.offload.drainsProbes
	}
	return true
}

func (m *module) countPosted(s *slot) {
	s.isPosted = true
	m.posted.operations++
	switch {
	case s.kind == slotReceive:
		m.posted.receives++
	case s.kind.isProbe():
		m.posted.probes++
	case s.kind.isSend():
		m.posted.sends++
		m.peers.all[s.peer].postedSends++
	}
}

// uncountPosted reverses countPosted. A posted send may have become slotAbandoned.
func (m *module) uncountPosted(s *slot) {
	m.posted.operations--
	switch {
	case s.kind == slotReceive:
		m.posted.receives--
	case s.kind.isProbe():
		m.posted.probes--
	case s.kind.isSend() || s.kind == slotAbandoned:
		m.posted.sends--
		m.peers.all[s.peer].postedSends--
	}
}

// endOp releases a slot. The next Poll notifies the owner of its operation.
func (m *module) endOp(s *slot, r mtl.Result) {
	m.queueResult(s.op, r)
	m.releaseSlot(s)
}

func (m *module) releaseSlot(s *slot) {
	if s.userBuf != nil {
		s.userBuf = nil
	} else if len(s.buf) > 0 {
		s.pins.Unpin()
	}
	if s.kind.isSend() {
		m.slots.activeSends--
	}
	if s.ownsRegion {
		m.memory.expired = append(m.memory.expired, s.region)
		s.ownsRegion = false
	}
	s.kind, s.op, s.buf, s.flags = slotUnused, nil, nil, 0
	s.isPosted, s.isBufferFree, s.isAcked, s.isCanceled = false, false, false, false
	m.slots.free = append(m.slots.free, s.number)
}
