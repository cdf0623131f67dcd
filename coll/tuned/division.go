package tuned

import "github.com/ferrympi/ferry/coll"

// division divides a block into parts that start at multiples of whole elements and, as far as
// elements allow, of cache lines. Parts differ by one such unit at most. Some parts of a short
// block are empty.
type division struct {
	// In bytes.
	blockSize, unitSize  int
	unitCount, partCount int
	// Explicit boundaries of the parts, nil for equal parts.
	boundaries []int
}

// cacheLine is the size of a cache line in bytes.
const cacheLine = 64

// divide divides size bytes of elements of elem bytes into parts. With an elem of 0, they are bytes.
func divide(size, elem, parts int) division {
	elem = max(1, elem)
	unit := (cacheLine + elem - 1) / elem * elem
	return division{blockSize: size, unitSize: unit, unitCount: (size + unit - 1) / unit, partCount: parts}
}

// maxSegments is the maximum number of segments of a block. A schedule has several steps for each.
// With that many, the latency of the first segment is small relative to the total time.
const maxSegments = 256

// segments divides a block into parts of about segment bytes. All parts but the last have the same
// size, and the last one is smaller or empty. If the blocks of two members differ, one of them
// therefore receives a part of an unexpected length, instead of waiting for one that never arrives.
func segments(size, elem, segment int) division {
	elem = max(1, elem)
	unit := (cacheLine + elem - 1) / elem * elem
	segment = max(segment, size/maxSegments)
	segment = (segment + unit - 1) / unit * unit
	parts := size/segment + 1
	return division{blockSize: size, unitSize: segment, unitCount: parts, partCount: parts}
}

// startOf returns the start of part i, or the end of the block for i == parts.
func (p division) startOf(i int) int {
	if p.boundaries != nil {
		return p.boundaries[i]
	}
	return min(p.blockSize, p.unitCount*i/p.partCount*p.unitSize)
}

// slice returns the position and size of parts i to j-1 of the block at base.
func (p division) slice(base coll.Ref, i, j int) (coll.Ref, int) {
	at := p.startOf(i)
	return base.Plus(at), p.startOf(j) - at
}

// largestPart returns the size of the largest part.
func (p division) largestPart() int {
	return min(p.blockSize, (p.unitCount+p.partCount-1)/p.partCount*p.unitSize)
}

// relative returns the distance from root to rank in the ring of ranks. absolute is its inverse.
func relative(rank, root, n int) int { return (rank - root + n) % n }
func absolute(rel, root, n int) int  { return (rel + root) % n }

// actors are a power of two of members that execute an algorithm for such numbers. The first pairs
// of neighbors act as one member each, represented by the upper one. An actor's ranks are
// consecutive, and so are those of successive actors.
type actors struct {
	count int // A power of two.
	// The ranks below 2*pairCount form pairs.
	pairCount int
}

func actorsOf(size int) actors {
	a := actors{count: 1}
	for a.count*2 <= size {
		a.count *= 2
	}
	a.pairCount = size - a.count
	return a
}

// actorOf returns the actor of a rank, and whether the rank itself acts.
func (a actors) actorOf(rank int) (actor int, acts bool) {
	if rank < 2*a.pairCount {
		return rank / 2, rank%2 == 1
	}
	return rank - a.pairCount, true
}

// rankOf returns the rank that acts for an actor.
func (a actors) rankOf(actor int) int {
	if actor < a.pairCount {
		return actor*2 + 1
	}
	return actor + a.pairCount
}
