// Package shmlayout is the layout of the segment that each process owns and into
// which its peers on the node write: a header with the process's doorbell, and a
// table of slots, one per sender, through which a sender asks for a ring. It is
// also the layout of regions, segments with memory that peers read.
// docs/wire.md describes it byte by byte. This package has no policy: btl/shm
// decides who maps what, and when.
//
// All numbers are little-endian and naturally aligned. Fields that two processes
// write are accessed atomically; what a peer wrote is checked by the reader.
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
	// Version is the version of the layout, and of what is asked of an owner: since 5 it looks
	// again after it has armed its bell, and since 6 it marks its inbox.
	Version = 6

	offMagic    = 0   // u64
	offVersion  = 8   // u32
	offSlots    = 12  // u32 number of slots
	offNonce    = 16  // u64 of the owner
	offState    = 24  // u32 atomic: stateOpen, stateClosed
	offPID      = 28  // u32 process id of the owner, as the owner sees it
	offBell     = 64  // doorbell
	offRequests = 128 // u32 atomic: raised by a sender after it changed a slot

	// HeaderSize is where the slots begin.
	HeaderSize = 256
	// SlotSize is the size of a slot.
	SlotSize = 256
	// NameMax is the longest file name of a sender's segment, in bytes.
	NameMax = 63
	// ReasonMax is the longest reason of a refusal, in bytes.
	ReasonMax = SlotSize - slotReason - 1

	slotState  = 0   // u32 atomic
	slotRank   = 4   // u32 sender's world rank
	slotWorld  = 8   // u64 hash of the sender's namespace
	slotNonce  = 16  // u64 of the sender
	slotOffset = 24  // u64 offset of the ring's cells in the segment
	slotCells  = 32  // u32 number of cells
	slotHow    = 36  // u32 of How
	slotShares = 40  // u64 atomic for each share: see Claims
	slotDone   = 56  // u32 atomic for each share
	slotRing   = 64  // ring header
	slotName   = 192 // file name of the sender's segment, NUL at the end
	slotReason = 64  // why a request was refused, over ring and name, NUL at the end

	stateOpen   = 1
	stateClosed = 2
)

// How says how the owner of an inbox found memory for a ring.
type How uint32

const (
	// Overflow: the ring is not in the inbox's file, but in the one beside it.
	Overflow How = 1 << iota
	// Shrunk: the ring is smaller than it should be, for lack of room.
	Shrunk
)

// The states of a slot.
const (
	Free      = 0 // anybody may claim it
	Claimed   = 1 // a sender fills it in
	Requested = 2 // the sender asks for a ring; the owner's turn
	Granted   = 3 // offset and cells are set; the ring is in use
	Refused   = 4 // the owner will not, or no longer; the sender's turn to free it
	Left      = 5 // the sender has gone; the owner drains the ring, then frees the slot
)

// Size returns the number of bytes of header and slots.
func Size(slots int) int { return HeaderSize + slots*SlotSize }

// Inbox is a view of a mapped inbox.
type Inbox struct {
	mem   []byte
	slots int
}

// ProbeSize is the number of bytes of Proof.
const ProbeSize = 16

// Proof returns the bytes at the beginning of the owner's table, in its private memory: its nonce and the
// complement. A peer reads them to find out whether the kernel allows it.
func Proof(nonce uint64) (p [ProbeSize]byte) {
	binary.LittleEndian.PutUint64(p[0:], nonce)
	binary.LittleEndian.PutUint64(p[8:], ^nonce)
	return p
}

// Init writes the header into zeroed memory of the owner.
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

// Attach checks the header of a peer's inbox. mem is at least HeaderSize bytes.
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

// PID returns the process id that the header has for the owner.
func (b Inbox) PID() uint32 { return binary.LittleEndian.Uint32(b.mem[offPID:]) }

// Bell returns the memory of the owner's doorbell.
func (b Inbox) Bell() []byte { return b.mem[offBell : offBell+doorbell.Size] }

// Slots returns the number of slots.
func (b Inbox) Slots() int { return b.slots }

// Requests returns a number that changes whenever a sender wants the owner to
// look at the slots.
func (b Inbox) Requests() uint32 { return b.u32(offRequests).Load() }

// Request has the owner look at the slots.
func (b Inbox) Request() {
	b.u32(offRequests).Add(1)
	doorbell.At(b.Bell()).Ring()
}

// Closed reports whether the owner has closed its inbox: nothing more is read.
func (b Inbox) Closed() bool { return b.u32(offState).Load() == stateClosed }

// Shut says that the owner reads nothing more.
func (b Inbox) Shut() { b.u32(offState).Store(stateClosed) }

// Slot returns slot i.
func (b Inbox) Slot(i int) Slot {
	at := HeaderSize + i*SlotSize
	return Slot{b.mem[at : at+SlotSize : at+SlotSize]}
}

// Slot is one sender's place in an inbox.
type Slot struct{ mem []byte }

func (s Slot) state() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&s.mem[slotState])) }

// State returns the slot's state.
func (s Slot) State() uint32 { return s.state().Load() }

// SetState sets the state: whose turn it is, follows from it.
func (s Slot) SetState(state uint32) { s.state().Store(state) }

// Move changes the state if it is still what the caller thinks: sender and owner
// may both want to change it at the same time.
func (s Slot) Move(from, to uint32) bool { return s.state().CompareAndSwap(from, to) }

// Sender is what a slot says of who asks.
type Sender struct {
	Rank  uint32
	World uint64 // hash of the namespace
	Nonce uint64
	Name  string // file name of its segment
}

// Ask fills in a claimed slot and requests a ring. The caller then calls
// Inbox.Request.
func (s Slot) Ask(from Sender) {
	le := binary.LittleEndian
	le.PutUint32(s.mem[slotRank:], from.Rank)
	le.PutUint64(s.mem[slotWorld:], from.World)
	s.nonce().Store(from.Nonce)
	n := copy(s.mem[slotName:slotName+NameMax], from.Name)
	s.mem[slotName+n] = 0
	s.SetState(Requested)
}

func (s Slot) nonce() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&s.mem[slotNonce])) }

// Nonce returns the nonce of the sender that asked last. It is that of the slot's user if the
// state was Requested, Granted, Refused or Left before.
func (s Slot) Nonce() uint64 { return s.nonce().Load() }

// Sender reads who asks. The name is one path element, or an error.
func (s Slot) Sender() (Sender, error) {
	le := binary.LittleEndian
	name := bytes.Clone(s.mem[slotName : slotName+NameMax+1]) // read once
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

// Refuse answers a request with a reason, which ReasonMax cuts. It takes the place of
// the ring's header, which is in use in Granted only, and of the name.
func (s Slot) Refuse(reason string) {
	if s.State() != Requested {
		return
	}
	n := copy(s.mem[slotReason:slotReason+ReasonMax], reason)
	s.mem[slotReason+n] = 0
	s.Move(Requested, Refused)
}

// Reason reads why a request was refused. It is a peer's text.
func (s Slot) Reason() string {
	text := bytes.Clone(s.mem[slotReason : slotReason+ReasonMax+1]) // read once
	text, _, _ = bytes.Cut(text, []byte{0})
	return strconv.Quote(string(text))
}

// Ring returns the memory of the slot's ring header.
func (s Slot) Ring() []byte { return s.mem[slotRing : slotRing+ring.HeaderSize] }

// Grant tells the sender where its ring is, and how it was made. The ring's header and
// cells are zero. It reports false if the sender has left meanwhile.
func (s Slot) Grant(offset int64, cells int, how How) bool {
	le := binary.LittleEndian
	le.PutUint64(s.mem[slotOffset:], uint64(offset))
	le.PutUint32(s.mem[slotCells:], uint32(cells))
	le.PutUint32(s.mem[slotHow:], uint32(how))
	return s.Move(Requested, Granted)
}

// Granted returns where the ring is; the sender checks it by mapping.
func (s Slot) Granted() (offset int64, cells int, how How) {
	le := binary.LittleEndian
	return int64(le.Uint64(s.mem[slotOffset:])), int(le.Uint32(s.mem[slotCells:])), How(le.Uint32(s.mem[slotHow:]))
}
