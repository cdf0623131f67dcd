package coll

import (
	"slices"

	"github.com/ferrympi/ferry/internal/cpu"
)

// A Schedule is the list of steps of one member in one operation. Steps start in their order, each
// as soon as enough of its predecessors are complete. The order keeps messages between two ranks in
// order, so that one tag is enough for an operation. Steps without dependencies overlap. A schedule
// refers to memory by slot and offset instead of pointers, and is valid for any call with equal
// arguments.
type Schedule struct {
	Steps []Step
	// Temp is the size of the working memory in bytes.
	Temp int

	startAfter int
	// Memory for the results of Scratch.
	scratchMemory []int
	// Pending steps of Inline.
	pendingSteps []int32
}

// Kind is the kind of a step.
type Kind uint8

const (
	Send    Kind = iota // Send N bytes of Buf to Peer.
	Recv                // Receive exactly N bytes into Buf from Peer.
	Copy                // Buf = From.
	Combine             // Buf = From op Buf. From has the operand of the lower ranks.
	Own                 // The instance polls the step (Instance.PollStep), which defines Do, Peer, N, Buf and From.
	Work                // The instance executes the step (Worker.Work), which defines the fields as for Own. N is the number of bytes that it touches.
)

// Step is a step of a schedule.
type Step struct {
	Kind Kind
	// Code of a step of kind Own or Work.
	Do uint8
	// The step starts when Steps[:After] are complete and all before it have started.
	After int32
	Peer  int32
	N     int // Bytes.
	Buf   Ref
	From  Ref
}

// Slot identifies a memory of a call.
type Slot uint8

// The initial contents of Temp are undefined.
const (
	In     Slot = iota // Contribution of the member, nil in place.
	Out                // Result of the member.
	Temp               // Working memory.
	Shared             // Memory of the instance.
)

// Ref is a position in a slot.
type Ref struct {
	Slot Slot
	// Offset in bytes.
	At int
}

// Plus returns the position n bytes further.
func (r Ref) Plus(n int) Ref { return Ref{r.Slot, r.At + n} }

// Reset empties the schedule and keeps its memory.
func (s *Schedule) Reset() {
	s.Steps, s.Temp, s.startAfter, s.scratchMemory = s.Steps[:0], 0, 0, s.scratchMemory[:0]
}

// Scratch returns n zeroed numbers for the plan, in memory of the schedule. It saves an allocation
// at each call with other arguments.
func (s *Schedule) Scratch(n int) []int {
	at := len(s.scratchMemory)
	s.scratchMemory = slices.Grow(s.scratchMemory, n)[:at+n]
	clear(s.scratchMemory[at:])
	return s.scratchMemory[at : at+n : at+n]
}

// Wait makes the following steps depend on all previous ones.
func (s *Schedule) Wait() { s.startAfter = len(s.Steps) }

// WaitFor makes the following steps depend on the first n steps only, so that a pipeline continues
// with a fragment while others are in flight.
func (s *Schedule) WaitFor(n int) { s.startAfter = max(0, n) }

// tempAlign is the alignment of allocations in Temp, a cache line, which suits any element type.
const tempAlign = 64

// NewTemp allocates n bytes of working memory.
func (s *Schedule) NewTemp(n int) Ref {
	r := Ref{Temp, s.Temp}
	s.Temp += (n + tempAlign - 1) &^ (tempAlign - 1)
	return r
}

func (s *Schedule) add(kind Kind, peer, n int, buf, from Ref) {
	s.Steps = append(s.Steps, Step{Kind: kind, After: int32(s.startAfter), Peer: int32(peer), N: n, Buf: buf, From: from})
}

// Send sends n bytes.
func (s *Schedule) Send(buf Ref, n, to int) { s.add(Send, to, n, buf, Ref{}) }

// Recv receives n bytes. A message of another length is an error.
func (s *Schedule) Recv(buf Ref, n, from int) { s.add(Recv, from, n, buf, Ref{}) }

// Copy copies n bytes, unless both positions are the same.
func (s *Schedule) Copy(to, from Ref, n int) {
	if to != from && n > 0 {
		s.add(Copy, 0, n, to, from)
	}
}

// Combine computes inout = low op inout.
func (s *Schedule) Combine(inout, low Ref, n int) {
	if n > 0 {
		s.add(Combine, 0, n, inout, low)
	}
}

// Own adds a step that the instance polls and whose parameters it defines. Concurrent steps may
// access the same memory only atomically.
func (s *Schedule) Own(what uint8, peer, n int, buf, from Ref) {
	s.add(Own, peer, n, buf, from)
	s.Steps[len(s.Steps)-1].Do = what
}

// Work adds a step that the instance executes without waiting, possibly by a user function. It
// touches at most n bytes.
func (s *Schedule) Work(what uint8, peer, n int, buf, from Ref) {
	s.add(Work, peer, n, buf, from)
	s.Steps[len(s.Steps)-1].Do = what
}

// SendFirst is the size in bytes up to which Both sends before it receives. Such sends usually
// complete at once, so that the receive is the only operation to wait for.
const SendFirst = 4 << 10

// Both sends and receives at the same time.
func (s *Schedule) Both(out Ref, nOut, to int, in Ref, nIn, from int) {
	if nOut <= SendFirst {
		s.Send(out, nOut, to)
		s.Recv(in, nIn, from)
	} else { // The receive is posted before the message arrives.
		s.Recv(in, nIn, from)
		s.Send(out, nOut, to)
	}
}

// Exchange is Both followed by Wait.
func (s *Schedule) Exchange(out Ref, nOut, to int, in Ref, nIn, from int) {
	s.Both(out, nOut, to, in, nIn, from)
	s.Wait()
}

// Buffers is the memory of a call. In is nil in place.
type Buffers struct{ In, Out, Temp, Shared []byte }

// largeCopy is the size in bytes from which copies in private memory use the processor's string
// copy. It takes 15 us instead of 26 for 1 MiB, and the same time for 256 KiB.
const largeCopy = 512 << 10

// Copy executes a step of kind Copy.
func (b *Buffers) Copy(s *Step) {
	to, from := b.At(s.Buf, s.N), b.At(s.From, s.N)
	if s.N >= largeCopy && s.Buf.Slot != s.From.Slot { // Positions in one slot may overlap.
		cpu.CopyShared(to, from)
	} else {
		copy(to, from)
	}
}

// At returns the n bytes at a position.
func (b *Buffers) At(r Ref, n int) []byte {
	from := b.Out
	switch r.Slot {
	case In:
		from = b.In
	case Temp:
		from = b.Temp
	case Shared:
		from = b.Shared
	}
	return from[r.At : r.At+n : r.At+n]
}
