// Package shmlayout defines the layout of shared memory between the processes of a node. An
// inbox is the segment of a process into which its peers write. It has a header with the
// doorbell of the owner and a table of slots, one per sender, for the requests of rings. A
// region is a segment with memory that peers read. docs/wire.md describes both byte by byte.
// This package has no policy; btl/shm maps the segments.
//
// All numbers are little-endian and naturally aligned. Fields with two writers are accessed
// atomically. The reader validates the fields of a peer.
package shmlayout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"unsafe"

	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/internal/ring"
)

const (
	magic = uint64(0x316d7379_72726566) // "ferrysm1"
	// Version is the version of the layout and of the duties of an owner. Since 5 the owner
	// polls again after it armed its bell; since 6 it marks its inbox.
	Version = 6

	// Offsets in the header. The state and the requests are atomic; the process id is the
	// owner's own view, and senders increment the requests after they changed a slot.
	offMagic    = 0   // u64
	offVersion  = 8   // u32
	offSlots    = 12  // u32
	offNonce    = 16  // u64
	offState    = 24  // u32
	offPID      = 28  // u32
	offBell     = 64  // doorbell.Size bytes
	offRequests = 128 // u32

	// HeaderSize is the offset of the first slot.
	HeaderSize = 256
	// SlotSize is the size of a slot in bytes.
	SlotSize = 256
	// NameMax is the longest file name of a sender's segment, in bytes.
	NameMax = 63
	// ReasonMax is the longest reason of a refusal, in bytes.
	ReasonMax = SlotSize - slotReason - 1

	// Offsets in a slot. State, shares and done are atomic. Name and reason end with NUL, and
	// the reason overlays the ring header and the name.
	slotState  = 0  // u32
	slotRank   = 4  // u32 world rank of the sender
	slotWorld  = 8  // u64 hash of the sender's namespace
	slotNonce  = 16 // u64
	slotOffset = 24 // u64 offset of the ring's cells in the segment
	slotCells  = 32 // u32
	slotFlags  = 36 // u32 RingFlags
	slotShares = 40 // u64 Claims per share
	slotDone   = 56 // u32 per share
	slotRing   = 64
	slotName   = 192
	slotReason = 64

	stateOpen   = 1
	stateClosed = 2
)

// RingFlags describe the memory of a granted ring.
type RingFlags uint32

const (
	// Overflow marks a ring in the overflow file beside the file of the inbox.
	Overflow RingFlags = 1 << iota
	// Shrunk marks a ring that is smaller than configured, for lack of memory.
	Shrunk
)

// States of a slot.
const (
	// Free is available to all senders.
	Free = 0
	// Claimed belongs to a sender that writes its request.
	Claimed = 1
	// Requested waits for the owner to grant or to refuse.
	Requested = 2
	// Granted has a ring in use.
	Granted = 3
	// Refused has no ring, or no longer. The sender frees the slot.
	Refused = 4
	// Left has no sender any longer. The owner drains the ring, then frees the slot.
	Left = 5
)

// Size returns the size of header and slots in bytes.
func Size(slots int) int { return HeaderSize + slots*SlotSize }

// Inbox is a view of a mapped inbox.
type Inbox struct {
	mem   []byte
	slots int
}

// ProofSize is the size of a proof in bytes.
const ProofSize = 16

// Proof returns the nonce and its complement. The owner stores them in private memory, and a
// peer reads them to verify that the kernel permits reads of the process.
func Proof(nonce uint64) (p [ProofSize]byte) {
	binary.LittleEndian.PutUint64(p[0:], nonce)
	binary.LittleEndian.PutUint64(p[8:], ^nonce)
	return p
}

// Init writes the header into zeroed memory.
func Init(mem []byte, slots int, nonce uint64, pid uint32) Inbox {
	le := binary.LittleEndian
	le.PutUint32(mem[offVersion:], Version)
	le.PutUint32(mem[offSlots:], uint32(slots))
	le.PutUint64(mem[offNonce:], nonce)
	le.PutUint32(mem[offPID:], pid)
	b := Inbox{mem, slots}
	b.u32(offState).Store(stateOpen)
	b.u64(offMagic).Store(magic)
	return b
}

// Attach validates the header of a peer's inbox.
func Attach(mem []byte, nonce uint64) (Inbox, error) {
	if len(mem) < HeaderSize {
		return Inbox{}, errors.New("segment is shorter than an inbox header")
	}
	b := Inbox{mem: mem}
	if b.u64(offMagic).Load() != magic {
		return Inbox{}, errors.New("segment is not a ferry inbox")
	}
	if v := binary.LittleEndian.Uint32(mem[offVersion:]); v != Version {
		return Inbox{}, fmt.Errorf("inbox layout version %d, here %d", v, Version)
	}
	if n := binary.LittleEndian.Uint64(mem[offNonce:]); n != nonce {
		return Inbox{}, errors.New("segment belongs to another process: its nonce differs")
	}
	slots := binary.LittleEndian.Uint32(mem[offSlots:])
	if slots == 0 || int64(slots)*SlotSize > int64(len(mem))-HeaderSize {
		return Inbox{}, fmt.Errorf("inbox claims %d slots in %d bytes", slots, len(mem))
	}
	b.slots = int(slots)
	return b, nil
}

func (b Inbox) u32(off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&b.mem[off])) }
func (b Inbox) u64(off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b.mem[off])) }

// PID returns the process id of the owner.
func (b Inbox) PID() uint32 { return binary.LittleEndian.Uint32(b.mem[offPID:]) }

// Bell returns the memory of the owner's doorbell.
func (b Inbox) Bell() []byte { return b.mem[offBell : offBell+doorbell.Size] }

// Slots returns the number of slots.
func (b Inbox) Slots() int { return b.slots }

// Requests returns a counter that changes with each request of a sender.
func (b Inbox) Requests() uint32 { return b.u32(offRequests).Load() }

// Request notifies the owner of a changed slot.
func (b Inbox) Request() {
	b.u32(offRequests).Add(1)
	doorbell.At(b.Bell()).Ring()
}

// Closed reports whether the owner has stopped reading the inbox.
func (b Inbox) Closed() bool { return b.u32(offState).Load() == stateClosed }

// Close marks the end of reading. Only the owner calls it.
func (b Inbox) Close() { b.u32(offState).Store(stateClosed) }

// Slot returns slot i.
func (b Inbox) Slot(i int) Slot {
	at := HeaderSize + i*SlotSize
	return Slot{b.mem[at : at+SlotSize : at+SlotSize]}
}

// Slot is the part of an inbox for one sender.
type Slot struct{ mem []byte }

func (s Slot) state() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&s.mem[slotState])) }

// State returns the slot's state.
func (s Slot) State() uint32 { return s.state().Load() }

// SetState stores the state. Only the side that the present state names calls it.
func (s Slot) SetState(state uint32) { s.state().Store(state) }

// Transition changes the state and reports false if it is not from. Sender and owner may
// change it concurrently.
func (s Slot) Transition(from, to uint32) bool { return s.state().CompareAndSwap(from, to) }

// Sender identifies the process that requests a ring.
type Sender struct {
	Rank uint32
	// Hash of the namespace.
	World uint64
	Nonce uint64
	// File name of its segment.
	Name string
}

// RequestRing writes the request into a claimed slot. The caller then calls Inbox.Request.
func (s Slot) RequestRing(from Sender) {
	le := binary.LittleEndian
	le.PutUint32(s.mem[slotRank:], from.Rank)
	le.PutUint64(s.mem[slotWorld:], from.World)
	s.nonce().Store(from.Nonce)
	n := copy(s.mem[slotName:slotName+NameMax], from.Name)
	s.mem[slotName+n] = 0
	s.SetState(Requested)
}

func (s Slot) nonce() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&s.mem[slotNonce])) }

// Nonce returns the nonce of the last request. It belongs to the current user of the slot if
// the state loaded before was Requested, Granted, Refused or Left.
func (s Slot) Nonce() uint64 { return s.nonce().Load() }

// Sender returns the sender of the request. It fails unless the name is one path element.
func (s Slot) Sender() (Sender, error) {
	le := binary.LittleEndian
	name := bytes.Clone(s.mem[slotName : slotName+NameMax+1]) // Read once.
	end := bytes.IndexByte(name, 0)
	if end <= 0 || bytes.IndexByte(name[:end], '/') >= 0 || name[0] == '.' {
		return Sender{}, errors.New("slot holds no valid segment name")
	}
	return Sender{
		Rank:  le.Uint32(s.mem[slotRank:]),
		World: le.Uint64(s.mem[slotWorld:]),
		Nonce: s.Nonce(),
		Name:  string(name[:end]),
	}, nil
}

// Refuse refuses a request with a reason, truncated to ReasonMax bytes. The reason overwrites
// the ring header, which is used only in Granted, and the name.
func (s Slot) Refuse(reason string) {
	if s.State() != Requested {
		return
	}
	n := copy(s.mem[slotReason:slotReason+ReasonMax], reason)
	s.mem[slotReason+n] = 0
	s.Transition(Requested, Refused)
}

// Reason returns the quoted reason of a refusal. The text is a peer's.
func (s Slot) Reason() string {
	text := bytes.Clone(s.mem[slotReason : slotReason+ReasonMax+1]) // Read once.
	text, _, _ = bytes.Cut(text, []byte{0})
	return strconv.Quote(string(text))
}

// Ring returns the memory of the slot's ring header.
func (s Slot) Ring() []byte { return s.mem[slotRing : slotRing+ring.HeaderSize] }

// Grant publishes the location of a ring with zeroed header and cells. It reports false if the
// sender has left.
func (s Slot) Grant(offset int64, cells int, flags RingFlags) bool {
	le := binary.LittleEndian
	le.PutUint64(s.mem[slotOffset:], uint64(offset))
	le.PutUint32(s.mem[slotCells:], uint32(cells))
	le.PutUint32(s.mem[slotFlags:], uint32(flags))
	return s.Transition(Requested, Granted)
}

// Granted returns the location of the ring, unvalidated. The sender validates it by mapping.
func (s Slot) Granted() (offset int64, cells int, flags RingFlags) {
	le := binary.LittleEndian
	return int64(le.Uint64(s.mem[slotOffset:])), int(le.Uint32(s.mem[slotCells:])), RingFlags(le.Uint32(s.mem[slotFlags:]))
}
