package coll

import (
	"slices"

	"github.com/ferrympi/ferry/internal/cpu"
)

// A Schedule is what one member does in one operation: steps that start in their
// order, each as soon as enough of those before it are complete. That they start in
// order is what keeps messages between two ranks in order, so that one tag is enough
// for an operation; the steps of which nobody waits for the other go on at the same
// time. A schedule names memory by slot and offset, and has no pointers: it is good for
// any call with equal arguments.
type Schedule struct {
	Steps []Step
	// Temp is how many bytes of working memory it needs.
	Temp int

	after int
	room  []int   // for Plan
	open  []int32 // Inline's: the steps that are under way
}

// Kind is what a step does.
type Kind uint8

// The kinds of steps.
const (
	Send    Kind = iota // Buf goes to Peer
	Recv                // Buf comes from Peer, all of it
	Copy                // Buf = From
	Combine             // Buf = From op Buf: From has the lower ranks
	Own                 // the instance does it (Instance.Try); Do, Peer, N, Buf and From mean what it wants
	Work                // the instance does it at once (Worker.Work); likewise, but N is how many bytes it touches
)

// Step is a step of a schedule.
type Step struct {
	Kind Kind
	Do   uint8 // of Own and Work: what
	// After: it starts when Steps[:After] are complete, and all before it have started.
	After int32
	Peer  int32
	N     int // bytes
	Buf   Ref
	From  Ref
}

// Slot is a piece of memory of a call.
type Slot uint8

// The slots. What Temp holds at first is undefined.
const (
	In     Slot = iota // what the member gives; in place there is none
	Out                // what it gets
	Temp               // working memory
	Shared             // the instance's memory
)

// Ref is a place in a slot.
type Ref struct {
	Slot Slot
	At   int // byte
}

// Plus is the place n bytes further.
func (r Ref) Plus(n int) Ref { return Ref{r.Slot, r.At + n} }

// Reset empties the schedule, and keeps its memory.
func (s *Schedule) Reset() {
	s.Steps, s.Temp, s.after, s.room = s.Steps[:0], 0, 0, s.room[:0]
}

// Numbers returns n zeros for the plan's own use, in memory of the schedule: a plan that
// allocates would do so again at each call with other arguments.
func (s *Schedule) Numbers(n int) []int {
	at := len(s.room)
	s.room = slices.Grow(s.room, n)[:at+n]
	clear(s.room[at:])
	return s.room[at : at+n : at+n]
}

// Wait has the steps that follow start only when all before are complete.
func (s *Schedule) Wait() { s.after = len(s.Steps) }

// WaitFor has the steps that follow start when the first n are complete, which is as
// many as Wait waits for or fewer: a pipeline goes on with a piece while others travel.
func (s *Schedule) WaitFor(n int) { s.after = max(0, n) }

// tempAlign is to what pieces of Temp are aligned: enough for any element type, and a
// cache line.
const tempAlign = 64

// NewTemp returns n bytes of working memory.
func (s *Schedule) NewTemp(n int) Ref {
	r := Ref{Temp, s.Temp}
	s.Temp += (n + tempAlign - 1) &^ (tempAlign - 1)
	return r
}

func (s *Schedule) add(kind Kind, peer, n int, buf, from Ref) {
	s.Steps = append(s.Steps, Step{Kind: kind, After: int32(s.after), Peer: int32(peer), N: n, Buf: buf, From: from})
}

// Send sends n bytes.
func (s *Schedule) Send(buf Ref, n, to int) { s.add(Send, to, n, buf, Ref{}) }

// Recv receives n bytes. A message of another length is an error.
func (s *Schedule) Recv(buf Ref, n, from int) { s.add(Recv, from, n, buf, Ref{}) }

// Copy copies n bytes, unless both places are one.
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

// Own is a step that the instance does, and to which what and all else mean something. It
// may use the memory of steps that go on at the same time in no way but atomically.
func (s *Schedule) Own(what uint8, peer, n int, buf, from Ref) {
	s.add(Own, peer, n, buf, from)
	s.Steps[len(s.Steps)-1].Do = what
}

// Work is a step that the instance does without waiting, and possibly by a function of the
// program. n is the number of bytes that it touches at most.
func (s *Schedule) Work(what uint8, peer, n int, buf, from Ref) {
	s.add(Work, peer, n, buf, from)
	s.Steps[len(s.Steps)-1].Do = what
}

// SendFirst is the size up to which Both sends before it receives, in bytes: so much
// goes at once, as a rule, and the receive is then the only thing to wait for.
const SendFirst = 4 << 10

// Both sends and receives at the same time.
func (s *Schedule) Both(out Ref, nOut, to int, in Ref, nIn, from int) {
	if nOut <= SendFirst {
		s.Send(out, nOut, to)
		s.Recv(in, nIn, from)
	} else { // what comes meanwhile goes to its place
		s.Recv(in, nIn, from)
		s.Send(out, nOut, to)
	}
}

// Exchange is Both, and waits.
func (s *Schedule) Exchange(out Ref, nOut, to int, in Ref, nIn, from int) {
	s.Both(out, nOut, to, in, nIn, from)
	s.Wait()
}

// Buffers is the memory of a call. In place, In is nil.
type Buffers struct{ In, Out, Temp, Shared []byte }

// largeCopy is the size from which a copy in one's own memory is made by the processor's string
// copy, in bytes: 1 MiB takes 15 us instead of 26, 256 KiB as long as otherwise.
const largeCopy = 512 << 10

// Copy does a step of kind Copy.
func (b *Buffers) Copy(s *Step) {
	to, from := b.At(s.Buf, s.N), b.At(s.From, s.N)
	if s.N >= largeCopy && s.Buf.Slot != s.From.Slot { // in one slot they may overlap
		cpu.CopyShared(to, from)
	} else {
		copy(to, from)
	}
}

// At returns the n bytes of a place.
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
