package ucx

import (
	"time"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// slotClosing is the close of an endpoint.
const slotClosing = base.SlotOwn

// slot is an operation that UCX holds.
type slot struct {
	base.Slot
	// isLong is set if the buffer is longer than ucp.MaxCopied.
	isLong bool
	// isRegistered is set if UCX may have registered the buffer.
	isRegistered  bool
	claimedResult mtl.Result
	claimedCID    uint32
	canceledAt    time.Time
}

// nextSlot returns the slot that takeSlot will return next.
func (m *module) nextSlot() (*slot, error) {
	if m.SlotPool.IsEmpty() {
		if _, err := m.worker.AddSlots(); err != nil {
			return nil, err
		}
		m.slotsByNumber = base.AddSlots(&m.Module, m.slotsByNumber, ucp.SlotsPerGrow, func(s *slot) *base.Slot { return &s.Slot })
	}
	return m.slotsByNumber[m.SlotPool.Next()], nil
}

func (m *module) takeSlot(k base.SlotKind, op *mtl.Op) (*slot, error) {
	s, err := m.nextSlot()
	if err != nil {
		return nil, err
	}
	m.SlotPool.Take(&s.Slot, k, op)
	return s, nil
}

// setReceiveBuffer sets the destination of a receive that is posted next.
func (m *module) setReceiveBuffer(s *slot, buf []byte) {
	s.IsPosted, s.isRegistered = true, m.transportTraits.registersMemory && len(buf) > ucp.MaxCopied
	if len(buf) > base.MaxBounced {
		m.pin(s, buf)
		return
	}
	s.Bounce(buf)
}

// bufferWritten must be called after UCX has written n bytes. It copies them from the bounce buffer.
func (s *slot) bufferWritten(n int) {
	ucp.Wrote(s.Buf, n)
	s.CopyBounced(int64(n))
}

// pin pins the buffer of a slot while UCX may use it.
func (m *module) pin(s *slot, buf []byte) {
	s.Pin(buf)
	if len(buf) > ucp.MaxCopied {
		s.isLong = true
		m.longOperations++
	}
}

// unpinIfPinned releases the buffer of a slot if it is pinned. Short ones are not.
func (m *module) unpinIfPinned(s *slot) {
	if s.IsPinned {
		m.unpin(s)
	}
}

func (m *module) unpin(s *slot) {
	if s.isRegistered {
		m.worker.InvalidateRegistrations(s.Buf)
		s.isRegistered = false
	}
	s.Unpin()
	if s.isLong {
		s.isLong = false
		m.longOperations--
	}
}

func (m *module) releaseSlot(s *slot) {
	m.unpinIfPinned(s)
	m.SlotPool.Release(&s.Slot)
}
