package cid

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
