package tuned

import "github.com/ferrympi/ferry/coll"

// pieces cuts a block into parts that begin at multiples of whole elements and, as far
// as elements allow, of cache lines. Parts differ by one such unit at most; of a short
// block some are empty.
type pieces struct {
	size, unit, units int // bytes, bytes, number
	parts             int
	ends              []int // where parts begin, and end, if they are given
}

// line is a cache line, in bytes.
const line = 64

// cut cuts size bytes of elements of elem bytes; 0: bytes.
func cut(size, elem, parts int) pieces {
	elem = max(1, elem)
	unit := (line + elem - 1) / elem * elem
	return pieces{size: size, unit: unit, units: (size + unit - 1) / unit, parts: parts}
}

// mostSegments is how many segments a block has at most. A schedule has several steps
// for each, and with that many the first one's way through the members is little beside
// the whole.
const mostSegments = 256

// segments cuts a block into parts of about segment bytes. All but the last have the same
// size, and the last one has less, or nothing: so a member whose block is longer or
// shorter than its peer's gets a part of another length than it expects, and does not
// wait for one that never comes.
func segments(size, elem, segment int) pieces {
	elem = max(1, elem)
	unit := (line + elem - 1) / elem * elem
	segment = max(segment, size/mostSegments)
	segment = (segment + unit - 1) / unit * unit
	parts := size/segment + 1
	return pieces{size: size, unit: segment, units: parts, parts: parts}
}

// at is where part i begins; part parts would begin at the end.
func (p pieces) at(i int) int {
	if p.ends != nil {
		return p.ends[i]
	}
	return min(p.size, p.units*i/p.parts*p.unit)
}

// of returns parts i to j-1 of what lies at base.
func (p pieces) of(base coll.Ref, i, j int) (coll.Ref, int) {
	at := p.at(i)
	return base.Plus(at), p.at(j) - at
}

// longest is the size of the largest part.
func (p pieces) longest() int {
	return min(p.size, (p.units+p.parts-1)/p.parts*p.unit)
}

// relative counts ranks from root; absolute is its inverse.
func relative(rank, root, n int) int { return (rank - root + n) % n }
func absolute(rel, root, n int) int  { return (rel + root) % n }

// actors are a power of two of members that do the work of an algorithm made for such
// numbers. The first pairs of neighbours act as one member, the upper one for both: so an
// actor's ranks are consecutive, and the ranks of actors in order are.
type actors struct {
	n     int // power of two
	pairs int // the ranks below 2*pairs form pairs
}

func actorsOf(size int) actors {
	a := actors{n: 1}
	for a.n*2 <= size {
		a.n *= 2
	}
	a.pairs = size - a.n
	return a
}

// number returns a rank's actor, and whether it acts itself.
func (a actors) number(rank int) (actor int, acts bool) {
	if rank < 2*a.pairs {
		return rank / 2, rank%2 == 1
	}
	return rank - a.pairs, true
}

// rank is that of an actor.
func (a actors) rank(actor int) int {
	if actor < a.pairs {
		return actor*2 + 1
	}
	return actor + a.pairs
}
