package base

import (
	"runtime"

	"github.com/ferrympi/ferry/mtl"
)

// SlotKind is the kind of operation that uses a slot.
type SlotKind uint8

const (
	SlotUnused SlotKind = iota
	SlotSend
	SlotSyncSend
	// A control message.
	SlotControl
	// The ack of a synchronous message.
	SlotSyncAck
	// A message or a call behind sent messages.
	SlotFlush
	// An operation without an owner, such as a send to a forgotten peer or a lost message.
	SlotAbandoned
	SlotReceive
	// A claimed message, and later its receive.
	SlotClaimed
	SlotControlReceive
	// SlotOwn is the first of the component's own kinds.
	SlotOwn
)

// IsSend reports whether the operation is a send of any kind.
func (k SlotKind) IsSend() bool { return SlotSend <= k && k <= SlotFlush }

// MaxBounced is the longest receive that uses a bounce buffer, in bytes. The copy is cheaper than pinning and unpinning the user's buffer,
// which takes 500 instructions, 36 ns.
const MaxBounced = 64

// Slot is the part of an operation in progress that every MTL has.
type Slot struct {
	// Number is the index in the module's slots. The library returns it with the completion.
	Number uint32
	// Peer is the destination or source; NoEndpoint for any source.
	Peer mtl.Endpoint
	Kind SlotKind
	// IsPosted is set while the library holds the operation.
	IsPosted   bool
	IsCanceled bool
	// IsPinned is set while Buf is pinned. A bounce buffer is not pinned by its slot.
	IsPinned bool
	// Op is nil if the operation has no owner.
	Op  *mtl.Op
	Buf []byte
	// UserBuf is the destination of a message that arrives in the bounce buffer; otherwise nil.
	UserBuf []byte
	// bounceBuf is pinned until EndClose.
	bounceBuf  *[MaxBounced]byte
	bufferPins runtime.Pinner
}

// SetReceiveBuffer sets the destination of a receive. A short message arrives in the bounce buffer, a longer one in buf, which is pinned.
func (s *Slot) SetReceiveBuffer(buf []byte) {
	if len(buf) > MaxBounced {
		s.Pin(buf)
		return
	}
	s.Bounce(buf)
}

// Bounce sets the destination of a receive of at most MaxBounced bytes.
func (s *Slot) Bounce(buf []byte) { s.UserBuf, s.Buf = buf, s.bounceBuf[:len(buf)] }

// ReceiveBuffer returns the buffer that was passed to SetReceiveBuffer.
func (s *Slot) ReceiveBuffer() []byte {
	if len(s.Buf) <= MaxBounced {
		return s.UserBuf
	}
	return s.Buf
}

// CopyBounced copies a message of n bytes from the bounce buffer to its destination, if it arrived there.
func (s *Slot) CopyBounced(n int64) { copy(s.UserBuf, s.Buf[:min(n, int64(len(s.Buf)))]) }

// Pin sets the buffer and pins it while the library may use it.
func (s *Slot) Pin(buf []byte) {
	s.Buf = buf
	if len(buf) > 0 {
		s.bufferPins.Pin(&buf[0])
		s.IsPinned = true
	}
}

// Unpin releases the buffer if it is pinned.
func (s *Slot) Unpin() {
	if s.IsPinned {
		s.bufferPins.Unpin()
		s.IsPinned, s.Buf = false, nil
	}
}

// SlotPool has the numbers of the unused slots.
type SlotPool struct {
	freeNumbers []uint32
	// activeSends counts the slots of sends of any kind.
	activeSends int
}

// IsEmpty reports whether Next needs AddSlots first.
func (t *SlotPool) IsEmpty() bool { return len(t.freeNumbers) == 0 }

// Next returns the number of the slot that must be used next.
func (t *SlotPool) Next() uint32 { return t.freeNumbers[len(t.freeNumbers)-1] }

// Take starts an operation in the slot Next. op may be nil.
func (t *SlotPool) Take(s *Slot, k SlotKind, op *mtl.Op) {
	t.freeNumbers = t.freeNumbers[:len(t.freeNumbers)-1]
	s.Kind, s.Op, s.Peer = k, op, mtl.NoEndpoint
	if k.IsSend() {
		t.activeSends++
	}
	if op != nil {
		op.Slot = s.Number
	}
}

// Release ends the operation in a slot, and unpins its buffer.
func (t *SlotPool) Release(s *Slot) {
	s.Unpin()
	if s.Kind.IsSend() {
		t.activeSends--
	}
	s.Kind, s.Op, s.Buf, s.UserBuf, s.IsPosted, s.IsCanceled = SlotUnused, nil, nil, nil, false, false
	t.freeNumbers = append(t.freeNumbers, s.Number)
}

// AddSlots returns slots, which are indexed by number, with n new ones. Their bounce buffers are pinned until EndClose. The lowest number is
// taken first. init completes a slot and returns its base.
func AddSlots[S any](m *Module, slots []*S, n int, init func(*S) *Slot) []*S {
	added, bounce := make([]S, n), make([][MaxBounced]byte, n)
	m.Pins.Pin(&bounce[0])
	first := len(slots)
	for i := range added {
		s := init(&added[i])
		s.Number, s.bounceBuf = uint32(first+i), &bounce[i]
		slots = append(slots, &added[i])
		m.SlotPool.freeNumbers = append(m.SlotPool.freeNumbers, uint32(first+n-1-i))
	}
	return slots
}
