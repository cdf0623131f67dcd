package ofi

import (
	"time"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// The kinds of slots that other MTLs have not.
const (
	slotProbe = base.SlotOwn + iota
	slotClaimingProbe
	// A claiming probe for any message of an overflow queue.
	slotPeek
)

func isProbe(k base.SlotKind) bool { return k >= slotProbe }

// slot is an operation that libfabric holds, or that waits for space there.
type slot struct {
	base.Slot
	// isBufferFree is set for a synchronous send that has completed and may be unacked.
	isBufferFree bool
	isAcked      bool
	// frameBuf is reused for the control frames of this slot.
	frameBuf []byte

	addressIndex uint64
	tag          uint64
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
	queuedAt   time.Time
	nextInFIFO *slot
	// queueEntry links the slot in an overflow queue or among the unacked sends.
	queueEntry match.Entry[slot]
}

// isReceiving reports whether libfabric may write into the buffer of s.
func (s *slot) isReceiving() bool {
	return s.IsPosted && (s.Kind == base.SlotReceive || s.Kind == base.SlotClaimed || s.Kind == slotPeek)
}

// fifo is a list of slots.
type fifo struct{ head, tail *slot }

func (f *fifo) push(s *slot) {
	s.nextInFIFO = nil
	if f.tail == nil {
		f.head = s
	} else {
		f.tail.nextInFIFO = s
	}
	f.tail = s
}

func (f *fifo) pushFirst(s *slot) {
	if s.nextInFIFO = f.head; f.head == nil {
		f.tail = s
	}
	f.head = s
}

func (f *fifo) pop() {
	if f.head = f.head.nextInFIFO; f.head == nil {
		f.tail = nil
	}
}

// takeSlot returns a slot for an operation on buf. It pins buf unless that is a short receive.
func (m *module) takeSlot(k base.SlotKind, op *mtl.Op, buf []byte) (*slot, error) {
	if m.SlotPool.IsEmpty() {
		n, err := m.ep.AddSlots()
		if err != nil {
			return nil, err
		}
		m.slotsByNumber = base.AddSlots(&m.Module, m.slotsByNumber, n-len(m.slotsByNumber), func(s *slot) *base.Slot {
			s.queueEntry.Owner = s
			return &s.Slot
		})
	}
	s := m.slotsByNumber[m.SlotPool.Next()]
	m.SlotPool.Take(&s.Slot, k, op)
	if k == base.SlotReceive {
		s.SetReceiveBuffer(buf)
	} else {
		s.Pin(buf)
	}
	return s, nil
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
	if m.registrations.isRequired || len(m.registrations.regions) > 0 || s.region != nil {
		if err := m.attachRegion(s); err != nil {
			m.Env.Logger.Error("mtl ofi: memory registration failed", "provider", m.Description.Provider, "err", err)
			return libfabric.NoMemory
		}
	}
	switch s.Kind {
	case base.SlotSend, base.SlotSyncSend:
		code = m.ep.TSend(s.Number, s.Buf, s.addressIndex, s.tag, s.bits, s.flags)
	case base.SlotControl, base.SlotSyncAck:
		// The provider may have no space for a send until the peer receives messages, and the peer may
		// wait for this frame before it does. Injection needs no space.
		if len(s.Buf) <= m.Capabilities.Inject && m.ep.Send(0, s.Buf, s.addressIndex, libfabric.Inject) == 0 {
			return 0
		}
		fallthrough
	case base.SlotFlush:
		code = m.ep.Send(s.Number, s.Buf, s.addressIndex, 0)
	case base.SlotReceive, base.SlotClaimed:
		code = m.ep.TRecv(s.Number, s.Buf, s.addressIndex, s.tag, s.bits, s.flags)
	case slotProbe, slotClaimingProbe:
		code = m.ep.Peek(s.Number, s.addressIndex, s.tag, s.bits, s.flags)
	case base.SlotControlReceive:
		code = m.ep.Recv(s.Number, s.Buf)
	}
	if code == 0 {
		m.countPosted(s)
	}
	return code
}

// mayPost reports whether the limits of the module permit to post an operation now.
func (m *module) mayPost(s *slot) bool {
	switch {
	case m.postedCounts.operations >= m.postedCounts.queueLimits.maxOperations:
		return false
	case s.Kind == base.SlotReceive:
		return m.postedCounts.receives < m.postedCounts.queueLimits.maxReceives && !m.mustDefer(s.Peer, len(s.Buf))
	case isProbe(s.Kind):
		return !m.offloader.drainsProbes
	}
	return true
}

func (m *module) countPosted(s *slot) {
	s.IsPosted = true
	m.postedCounts.operations++
	switch {
	case s.Kind == base.SlotReceive:
		m.postedCounts.receives++
	case isProbe(s.Kind):
		m.postedCounts.probes++
	case s.Kind.IsSend():
		m.postedCounts.sends++
		m.peerTable.peersByEndpoint[s.Peer].postedSends++
	}
}

// uncountPosted reverses countPosted. A posted send may have become base.SlotAbandoned.
func (m *module) uncountPosted(s *slot) {
	m.postedCounts.operations--
	switch {
	case s.Kind == base.SlotReceive:
		m.postedCounts.receives--
	case isProbe(s.Kind):
		m.postedCounts.probes--
	case s.Kind.IsSend() || s.Kind == base.SlotAbandoned:
		m.postedCounts.sends--
		m.peerTable.peersByEndpoint[s.Peer].postedSends--
	}
}

// endOp releases a slot. The next Poll notifies the owner of its operation.
func (m *module) endOp(s *slot, r mtl.Result) {
	m.QueueResult(s.Op, r)
	m.releaseSlot(s)
}

func (m *module) releaseSlot(s *slot) {
	if s.ownsRegion {
		m.registrations.expiredRegions = append(m.registrations.expiredRegions, s.region)
		s.ownsRegion = false
	}
	s.flags, s.isBufferFree, s.isAcked = 0, false, false
	m.SlotPool.Release(&s.Slot)
}
