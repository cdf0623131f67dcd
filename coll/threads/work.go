package threads

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// What steps of kind Work do.
const (
	fetch      = iota // copies N bytes at From.At of what Peer has published in the next round to Buf
	foldInline        // combines the operands in all lines of this round, N bytes, to Buf
	// Operands have From.At bytes, of elements of Peer bytes. From.Slot is that of this rank's, and Buf is for sums.
	foldShare  // combines this rank's share of all operands
	foldChunks // combines chunks until all are claimed
)

// Work implements coll.Worker. Steps that use the slices of other ranks do nothing after one has
// withdrawn: then the operation ends with an error.
func (x *Instance) Work(s *coll.Step, c *coll.Call) {
	if s.Do == foldInline {
		x.foldLines(c.At(s.Buf, s.N), c)
		return
	}
	working := &x.t.working[x.seat].v
	working.Store(1) // Withdraw stores the other word first and loads this one after it
	defer working.Store(0)
	if x.isAborted() {
		return
	}
	switch s.Do {
	case fetch:
		x.fetch(s, c)
	case foldShare:
		from, n := share(x.seat, len(x.t.ranks), s.From.At, int(s.Peer))
		x.foldSlices(s, c, from, n)
	case foldChunks:
		x.foldChunks(s, c)
	}
}

// isAborted reports whether a rank has withdrawn its slices.
func (x *Instance) isAborted() bool {
	if x.t.isAborted.Load() {
		x.isLost = true
	}
	return x.isLost
}

func (x *Instance) fetch(s *coll.Step, c *coll.Call) {
	at := slotOf(int(s.Peer), x.round+1)
	to := c.At(s.Buf, s.N)
	if l := &x.t.lines[at]; l.total <= inlineMost {
		copy(to, l.data[s.From.At:])
		return
	}
	from := x.t.slices[at].in[s.From.At:][:s.N]
	for n := 0; n < len(from) && !x.isAborted(); n += copyUnit {
		cpu.CopyShared(to[n:], from[n:min(len(from), n+copyUnit)])
	}
}

// copyUnit is the number of bytes that are copied until a withdrawal is noticed.
const copyUnit = 256 << 10

// foldLines combines the operands in lines, from the last rank down: each comes before what is
// there.
func (x *Instance) foldLines(to []byte, c *coll.Call) {
	if len(to) == 0 {
		return
	}
	last := len(x.t.ranks) - 1
	copy(to, x.t.lines[slotOf(last, x.round)].data[:])
	for seat := last - 1; seat >= 0; seat-- {
		c.Apply(to, x.t.lines[slotOf(seat, x.round)].data[:len(to):len(to)])
	}
}

// foldChunks combines chunks of the operands after all ranks have arrived. The rank that completes the last
// one completes the round.
func (x *Instance) foldChunks(s *coll.Step, c *coll.Call) {
	t, all := x.t, s.From.At
	chunk, chunks := x.l.chunks(all, int(s.Peer), len(t.ranks))
	for reached(t.gathered.word.Load(), x.round) {
		claim := t.work.claims.Add(1) - 1
		if uint32(claim>>32) != x.round || int(uint32(claim)) >= chunks {
			return
		}
		if all <= inlineMost {
			x.foldLines(t.released.result[:all:all], c)
		} else {
			at := int(uint32(claim)) * chunk
			x.foldSlices(s, c, at, min(chunk, all-at))
		}
		if x.isLost {
			return
		}
		if t.work.done.Add(1) == uint32(chunks) {
			t.release(x.round)
		}
	}
}

// foldSlices combines n bytes at a place of all slices, in pieces that stay in the first cache, and
// copies them to all ranks that get the result. It accumulates in this rank's own result unless that is an operand.
func (x *Instance) foldSlices(s *coll.Step, c *coll.Call, at, n int) {
	own := x.slices(x.seat)
	unit := x.l.unit(int(s.Peer), x.l.chunk)
	for end := at + n; at < end && !x.isLost; at += unit {
		size := min(unit, end-at)
		sum, isOwn := c.At(s.Buf, size), false
		if own.out != nil && s.From.Slot == coll.In {
			sum, isOwn = own.out[at:at+size:at+size], true
		}
		if x.accumulate(sum, at, c) {
			x.distribute(sum, at, isOwn)
		}
	}
}

// slices returns what a seat has published in this round.
func (x *Instance) slices(seat int) *published { return &x.t.slices[slotOf(seat, x.round)] }

// accumulate combines the operands at a place, from the last rank down. It reports whether it has
// done so.
func (x *Instance) accumulate(sum []byte, at int, c *coll.Call) bool {
	last, n := len(x.t.ranks)-1, len(sum)
	copy(sum, x.slices(last).in[at:at+n])
	for seat := last - 1; seat >= 0; seat-- {
		if x.isAborted() {
			return false
		}
		c.Apply(sum, x.slices(seat).in[at:at+n:at+n])
	}
	return true
}

func (x *Instance) distribute(sum []byte, at int, isOwn bool) {
	for k := range x.t.ranks { // not all to the same rank at the same time
		seat := x.seat + k
		if seat >= len(x.t.ranks) {
			seat -= len(x.t.ranks)
		}
		if isOwn && k == 0 {
			continue
		}
		if x.isAborted() {
			return
		}
		if out := x.slices(seat).out; out != nil {
			cpu.CopyShared(out[at:at+len(sum)], sum)
		}
	}
}

// share returns a seat's part of n bytes, whole elements.
func share(seat, seats, n, elem int) (from, bytes int) {
	unit := units(elem)
	all := (n + unit - 1) / unit
	from = min(n, all*seat/seats*unit)
	return from, min(n, all*(seat+1)/seats*unit) - from
}

// units returns the size of the smallest part of an operand: whole elements, and where they allow
// it, whole cache lines.
func units(elem int) int {
	elem = max(1, elem)
	return (lineSize + elem - 1) / elem * elem
}

const lineSize = 64

// unit returns a size of about n bytes, or more if elements are larger.
func (l *layout) unit(elem, n int) int {
	u := units(elem)
	return max(1, n/u) * u
}

// mostWorkers bounds the number of chunks of a reduction that is not large.
const mostWorkers = 32

// leastChunk is the size of the smallest chunk, in bytes: to claim one costs as much as to combine it.
const leastChunk = 2 << 10

// chunks returns the size of the parts of n bytes that ranks claim, and their number.
func (l *layout) chunks(n, elem, ranks int) (size, number int) {
	size = l.unit(elem, min(max(n/min(ranks, mostWorkers), leastChunk), l.chunk))
	return size, max(1, (n+size-1)/size)
}
