package cid

import (
	"math"
	"math/bits"
)

// Span is a range of extended ids with one base. It has the ids of some children of a
// communicator and of all their descendants. The zero Span is empty.
type Span struct {
	Base uint64
	// Values of Extended.Sub.
	FirstSub, LastSub uint64
}

// Has reports whether id is in the span.
func (s Span) Has(id Extended) bool {
	return s.Base != 0 && id.Base == s.Base && s.FirstSub <= id.Sub && id.Sub <= s.LastSub
}

// Descendants returns the span of a communicator and all of its descendants.
func Descendants(id Extended) Span {
	if id.Sub == 0 {
		return Span{id.Base, 0, math.MaxUint64}
	}
	level := bits.TrailingZeros64(id.Sub) / levelBits * levelBits
	return Span{id.Base, id.Sub, id.Sub | (1<<level - 1)}
}

// UnassignedIDs returns the span of the ids that d has not assigned, and their descendants. A member
// that creates no further communicators is in none with one of these ids.
func (d *Deriver) UnassignedIDs() Span {
	if d.remainingIDs == 0 {
		return Span{}
	}
	next := uint64(MaxChildren-d.remainingIDs+1) << d.fieldShift
	return Span{d.parentID.Base, d.parentID.Sub | next, d.parentID.Sub | MaxChildren<<d.fieldShift | (1<<d.fieldShift - 1)}
}
