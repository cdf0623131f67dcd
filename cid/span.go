package cid

import (
	"math"
	"math/bits"
)

// Span is a range of extended ids on one base: those of some children of a communicator
// and of all their descendants. The zero Span holds none.
type Span struct {
	Base        uint64
	First, Last uint64 // of Sub
}

// Has reports whether id lies in the span.
func (s Span) Has(id Extended) bool {
	return s.Base != 0 && id.Base == s.Base && s.First <= id.Sub && id.Sub <= s.Last
}

// Below returns the span of a communicator and of all that is derived from it.
func Below(id Extended) Span {
	if id.Sub == 0 {
		return Span{id.Base, 0, math.MaxUint64}
	}
	level := bits.TrailingZeros64(id.Sub) / levelBits * levelBits
	return Span{id.Base, id.Sub, id.Sub | (1<<level - 1)}
}

// Unborn returns the ids that d has not given out, with all that could be derived from
// them. A member that takes part in no further creation is in no communicator with one
// of these.
func (d *Deriver) Unborn() Span {
	if d.left == 0 {
		return Span{}
	}
	next := uint64(MaxChildren-d.left+1) << d.shift
	return Span{d.parent.Base, d.parent.Sub | next, d.parent.Sub | MaxChildren<<d.shift | (1<<d.shift - 1)}
}
