package threads

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// Codes of steps of kind Work.
const (
	fetch      = iota // Copies N bytes at From.At of the memory that Peer has published in the next phase to Buf.
	foldInline        // Combines N bytes of the operands in all posts of this phase in Buf.
	// In the following steps, operands have From.At bytes in elements of Peer bytes. From.Slot is
	// that of this rank's operand, and Buf is for sums.
	foldShare  // Combines this rank's share of all operands.
	foldChunks // Combines chunks until all are claimed.
)

// Work implements coll.Worker. After a withdrawal, steps that use the slices of other ranks do
// nothing, and the operation ends with an error.
func (x *Instance) Work(s *coll.Step, c *coll.Call) {
	if s.Do == foldInline {
		x.foldLines(c.At(s.Buf, s.N), c)
		return
	}
	working := &x.team.workingFlags[x.localRank].value
	working.Store(1) // Withdraw stores isAborted before it loads this word.
	defer working.Store(0)
	if x.isAborted() {
		return
	}
	switch s.Do {
	case fetch:
		x.fetch(s, c)
	case foldShare:
		from, n := shareOf(x.localRank, len(x.team.ranks), s.From.At, int(s.Peer))
		x.foldSlices(s, c, from, n)
	case foldChunks:
		x.foldChunks(s, c)
	}
}

// isAborted reports whether a rank has withdrawn its slices.
func (x *Instance) isAborted() bool {
	if x.team.isAborted.Load() {
		x.isLost = true
	}
	return x.isLost
}

func (x *Instance) fetch(s *coll.Step, c *coll.Call) {
	at := slotOf(int(s.Peer), x.arrivedPhase+1)
	to := c.At(s.Buf, s.N)
	if l := &x.team.posts[at]; l.totalBytes <= maxInline {
		copy(to, l.inlineOperand[s.From.At:])
		return
	}
	from := x.team.publishedSlices[at].in[s.From.At:][:s.N]
	for n := 0; n < len(from) && !x.isAborted(); n += copyUnit {
		cpu.CopyShared(to[n:], from[n:min(len(from), n+copyUnit)])
	}
}

// copyUnit is the number of bytes between two checks for a withdrawal.
const copyUnit = 256 << 10

// foldLines combines the operands in posts from the highest rank down. Each one is combined before
// the existing sum.
func (x *Instance) foldLines(to []byte, c *coll.Call) {
	if len(to) == 0 {
		return
	}
	last := len(x.team.ranks) - 1
	copy(to, x.team.posts[slotOf(last, x.arrivedPhase)].inlineOperand[:])
	for localRank := last - 1; localRank >= 0; localRank-- {
		c.Apply(to, x.team.posts[slotOf(localRank, x.arrivedPhase)].inlineOperand[:len(to):len(to)])
	}
}

// foldChunks combines chunks of the operands after all ranks have arrived. The rank that completes
// the last chunk completes the phase.
func (x *Instance) foldChunks(s *coll.Step, c *coll.Call) {
	t, all := x.team, s.From.At
	chunk, chunks := x.layout.chunks(all, int(s.Peer), len(t.ranks))
	for hasReached(t.gatheredGate.reachedPhase.Load(), x.arrivedPhase) {
		claim := t.work.chunkClaims.Add(1) - 1
		if uint32(claim>>32) != x.arrivedPhase || int(uint32(claim)) >= chunks {
			return
		}
		if all <= maxInline {
			x.foldLines(t.releasedGate.inlineResult[:all:all], c)
		} else {
			at := int(uint32(claim)) * chunk
			x.foldSlices(s, c, at, min(chunk, all-at))
		}
		if x.isLost {
			return
		}
		if t.work.doneChunks.Add(1) == uint32(chunks) {
			t.completePhase(x.arrivedPhase)
		}
	}
}

// foldSlices combines n bytes at offset at of all slices, in units that stay in the first-level
// cache, and copies them to all ranks that get the result. It accumulates in this rank's own result
// unless that is an operand.
func (x *Instance) foldSlices(s *coll.Step, c *coll.Call, at, n int) {
	own := x.slices(x.localRank)
	unit := x.layout.unit(int(s.Peer), x.layout.chunkSize)
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

// slices returns the slices that a rank has published in this phase.
func (x *Instance) slices(localRank int) *published {
	return &x.team.publishedSlices[slotOf(localRank, x.arrivedPhase)]
}

// accumulate combines the operands at an offset from the highest rank down. It reports false after
// a withdrawal.
func (x *Instance) accumulate(sum []byte, at int, c *coll.Call) bool {
	last, n := len(x.team.ranks)-1, len(sum)
	copy(sum, x.slices(last).in[at:at+n])
	for localRank := last - 1; localRank >= 0; localRank-- {
		if x.isAborted() {
			return false
		}
		c.Apply(sum, x.slices(localRank).in[at:at+n:at+n])
	}
	return true
}

func (x *Instance) distribute(sum []byte, at int, isOwn bool) {
	for k := range x.team.ranks { // Each rank starts at another destination.
		localRank := x.localRank + k
		if localRank >= len(x.team.ranks) {
			localRank -= len(x.team.ranks)
		}
		if isOwn && k == 0 {
			continue
		}
		if x.isAborted() {
			return
		}
		if out := x.slices(localRank).out; out != nil {
			cpu.CopyShared(out[at:at+len(sum)], sum)
		}
	}
}

// shareOf returns the offset and size of a rank's share of n bytes in whole elements.
func shareOf(localRank, localSize, n, elem int) (from, bytes int) {
	unit := smallestUnit(elem)
	all := (n + unit - 1) / unit
	from = min(n, all*localRank/localSize*unit)
	return from, min(n, all*(localRank+1)/localSize*unit) - from
}

// smallestUnit returns the size of the smallest part of an operand, which is whole elements and, if they
// allow it, whole cache lines.
func smallestUnit(elem int) int {
	elem = max(1, elem)
	return (lineSize + elem - 1) / elem * elem
}

const lineSize = 64

// unit returns a size of about n bytes, or more if elements are larger.
func (l *layout) unit(elem, n int) int {
	u := smallestUnit(elem)
	return max(1, n/u) * u
}

// maxWorkers limits the number of chunks of a reduction that is not large.
const maxWorkers = 32

// minChunk is the size of the smallest chunk in bytes, for which a claim costs as much as the
// combination.
const minChunk = 2 << 10

// chunks returns the size and number of the chunks of n bytes that ranks claim.
func (l *layout) chunks(n, elem, ranks int) (size, number int) {
	size = l.unit(elem, min(max(n/min(ranks, maxWorkers), minChunk), l.chunkSize))
	return size, max(1, (n+size-1)/size)
}
