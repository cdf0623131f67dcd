package ucx

import (
	"runtime"
	"time"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// slotKind is the kind of operation that uses a slot.
type slotKind uint8

const (
	slotUnused slotKind = iota
	slotSend
	slotSyncSend
	// A flush behind sent messages.
	slotFlush
	// An operation without an owner: a send to a forgotten peer, or a lost message.
	slotAbandoned
	// The close of an endpoint.
	slotClosing
	slotReceive
	// A claimed message, and later its receive.
	slotClaimed
	slotControlReceive
)

func (k slotKind) isSend() bool { return k == slotSend || k == slotSyncSend || k == slotFlush }

// slot is an operation that UCX holds.
type slot struct {
	number uint32
	kind   slotKind
	// isPosted is set while UCX holds the operation.
	isPosted   bool
	isCanceled bool
	op         *mtl.Op
	buf        []byte
	// userBuf is the destination of a message that arrives in bounceBuf; otherwise nil.
	userBuf []byte
	// bounceBuf is pinned until Close.
	bounceBuf *[maxBounced]byte
	pins      runtime.Pinner
	isPinned  bool
	// isLong is set if the buffer is longer than ucp.MaxCopied.
	isLong bool
	// isRegistered is set if UCX may have registered the buffer.
	isRegistered bool
	// peer is the destination or source; NoEndpoint for any source.
	peer mtl.Endpoint
	// found and cid describe a claimed message.
	found mtl.Result
	cid   uint32
	// hasLeft is set if the sender of a claimed message has left the communicator.
	hasLeft    bool
	canceledAt time.Time
}

// slotTable holds the slots of a module.
type slotTable struct {
	all  []*slot // by slot number
	free []uint32
	// spareReceive is a slot for the next recvShortAndPoll, or nil.
	spareReceive *slot
	activeSends  int
	// longOperations counts the slots with isLong.
	longOperations int
}

// maxBounced is the longest receive that uses a bounce buffer. The copy is cheaper than pinning and unpinning the user's
// buffer, which takes 36 ns.
const maxBounced = 64

// nextSlot returns the slot that takeSlot will return next.
func (m *module) nextSlot() (*slot, error) {
	if len(m.slots.free) == 0 {
		if _, err := m.worker.AddSlots(); err != nil {
			return nil, err
		}
		n := len(m.slots.all) + ucp.SlotsPerGrow
		more := make([]slot, ucp.SlotsPerGrow)
		short := make([][maxBounced]byte, len(more))
		m.pins.Pin(&short[0])
		for i := range more {
			more[i].bounceBuf = &short[i]
			m.slots.all = append(m.slots.all, &more[i])
			more[i].number = uint32(len(m.slots.all) - 1)
			m.slots.free = append(m.slots.free, uint32(n-1-i)) // takeSlot returns low numbers first.
		}
	}
	return m.slots.all[m.slots.free[len(m.slots.free)-1]], nil
}

func (m *module) takeSlot(k slotKind, op *mtl.Op) (*slot, error) {
	s, err := m.nextSlot()
	if err != nil {
		return nil, err
	}
	m.slots.free = m.slots.free[:len(m.slots.free)-1]
	s.kind, s.op, s.peer, s.hasLeft = k, op, mtl.NoEndpoint, false
	if k.isSend() {
		m.slots.activeSends++
	}
	if op != nil {
		op.Slot = s.number
	}
	return s, nil
}

// setReceiveBuffer sets the destination of a receive: the bounce buffer if buf is short, otherwise buf, which it pins.
func (m *module) setReceiveBuffer(s *slot, buf []byte) {
	s.isPosted, s.isRegistered = true, m.registersMemory && len(buf) > ucp.MaxCopied
	if len(buf) > maxBounced {
		m.pin(s, buf)
		return
	}
	s.userBuf, s.buf = buf, s.bounceBuf[:len(buf)]
}

// bufferWritten must be called after UCX has written n bytes. It copies them from the bounce buffer.
func (s *slot) bufferWritten(n int) {
	ucp.Wrote(s.buf, n)
	copy(s.userBuf, s.buf[:min(n, len(s.buf))])
}

// pin pins the buffer of a slot while UCX may use it.
func (m *module) pin(s *slot, buf []byte) {
	s.buf = buf
	if len(buf) > 0 {
		s.pins.Pin(&buf[0])
		s.isPinned = true
	}
	if len(buf) > ucp.MaxCopied {
		s.isLong = true
		m.slots.longOperations++
	}
}

// unpinIfPinned releases the buffer of a slot if it is pinned. Short ones are not.
func (m *module) unpinIfPinned(s *slot) {
	if s.isPinned {
		m.unpin(s)
	}
}

func (m *module) unpin(s *slot) {
	if s.isRegistered {
		m.worker.InvalidateRegistrations(s.buf)
		s.isRegistered = false
	}
	s.pins.Unpin()
	s.isPinned = false
	if s.isLong {
		s.isLong = false
		m.slots.longOperations--
	}
	s.buf = nil
}

// abandonOp queues an error for the owner of an operation that UCX still holds. The slot is released at its completion.
func (m *module) abandonOp(s *slot, why error) {
	m.queueResult(s.op, mtl.Result{Err: why})
	if s.kind.isSend() {
		m.slots.activeSends--
	}
	s.op, s.userBuf, s.kind = nil, nil, slotAbandoned
}

func (m *module) releaseSlot(s *slot) {
	m.unpinIfPinned(s)
	if s.kind.isSend() {
		m.slots.activeSends--
	}
	s.kind, s.op, s.userBuf, s.isPosted, s.isCanceled = slotUnused, nil, nil, false, false
	m.slots.free = append(m.slots.free, s.number)
}
