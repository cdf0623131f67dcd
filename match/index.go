package match

import "math/rand/v2"

// index finds the entries of a list by tag. It is a hash table with open addressing and one slot for each
// tag, including AnyTag, which has the entries of that tag in the list's order. It is active while the
// list is long, and otherwise keeps only its memory.
type index[T any] struct {
	isActive bool
	// slots has a power of two of them. hashShift is 64 less the bits of a position.
	slots     []tagSlot[T]
	hashShift uint8
	// hashFactor is odd and random, so that a peer cannot choose tags that collide.
	hashFactor uint64
	usedSlots  int
	// peakUsed is the maximum of usedSlots since activate.
	peakUsed   int
	entryCount int
}

// tagSlot has the entries of one tag. It is free if head is nil.
type tagSlot[T any] struct {
	tag        int
	head, tail *Entry[T]
}

const (
	// longWalk is the number of entries that a walk passes before the list gets an index. A step
	// costs about 1 ns if the entry is cached and 5 to 80 ns otherwise, and a lookup about 10 ns.
	longWalk = 32
	// shortList is the length up to which a walk is as fast as a lookup.
	shortList = 8
	// minSlots is the size of the smallest table.
	minSlots = 4 * longWalk
)

// lookupTag is first with the index, which it creates or activates if necessary.
func (l *list[T]) lookupTag(tag, chain int) *Entry[T] {
	x := l.tagIndex
	if x == nil {
		x = &index[T]{}
		l.tagIndex = x
	}
	if !x.isActive {
		x.activate()
		l.each(chain, func(e *Entry[T]) { x.add(e, chain) })
	}
	r, any := x.slots[x.find(tag)].head, x.slots[x.find(AnyTag)].head
	if r == nil || any != nil && any.postStamp < r.postStamp {
		return any
	}
	return r
}

// activate activates an empty index.
func (x *index[T]) activate() {
	x.isActive, x.peakUsed = true, 0
	if x.slots == nil {
		x.resize(minSlots)
	}
}

// deactivate clears the index. It frees a table that was mostly empty.
func (x *index[T]) deactivate() {
	x.isActive = false
	if len(x.slots) > minSlots && x.peakUsed < len(x.slots)/8 {
		x.slots = nil
	} else if x.usedSlots > 0 {
		clear(x.slots)
	}
	x.usedSlots, x.entryCount = 0, 0
}

// find returns the position of tag, or of the free slot for it.
func (x *index[T]) find(tag int) int {
	mask := len(x.slots) - 1
	at := x.home(tag)
	for x.slots[at].head != nil && x.slots[at].tag != tag {
		at = (at + 1) & mask
	}
	return at
}

// home returns the position at which the search for tag starts.
func (x *index[T]) home(tag int) int { return int(uint64(tag) * x.hashFactor >> x.hashShift) }

// add appends e to the entries of its tag, if the index is active.
func (x *index[T]) add(e *Entry[T], chain int) {
	if !x.isActive {
		return
	}
	s := &x.slots[x.find(e.Tag)]
	x.entryCount++
	e.tagLinks[chain] = links[T]{prev: s.tail}
	if s.head != nil {
		s.tail.tagLinks[chain].next = e
		s.tail = e
		return
	}
	s.tag, s.head, s.tail = e.Tag, e, e
	if x.usedSlots++; x.usedSlots > x.peakUsed {
		x.peakUsed = x.usedSlots
	}
	if 2*x.usedSlots > len(x.slots) {
		x.resize(2 * len(x.slots))
	}
}

// remove removes e, if the index is active.
func (x *index[T]) remove(e *Entry[T], chain int) {
	if !x.isActive {
		return
	}
	at := e.tagLinks[chain]
	e.tagLinks[chain] = links[T]{}
	if at.prev != nil {
		at.prev.tagLinks[chain].next = at.next
	}
	if at.next != nil {
		at.next.tagLinks[chain].prev = at.prev
	}
	if at.prev == nil || at.next == nil {
		i := x.find(e.Tag)
		switch s := &x.slots[i]; {
		case at.prev == nil && at.next == nil:
			x.free(i)
		case at.prev == nil:
			s.head = at.next
		default:
			s.tail = at.prev
		}
	}
	if x.entryCount--; x.entryCount < shortList {
		x.deactivate()
	}
}

// free empties a slot and moves later ones, so that no search ends too early.
func (x *index[T]) free(at int) {
	x.usedSlots--
	mask := len(x.slots) - 1
	for next := (at + 1) & mask; x.slots[next].head != nil; next = (next + 1) & mask {
		// A slot may move to at if its search starts there or before.
		if home := x.home(x.slots[next].tag); (next-home)&mask >= (next-at)&mask {
			x.slots[at] = x.slots[next]
			at = next
		}
	}
	x.slots[at] = tagSlot[T]{}
}

// resize creates a table of n slots.
func (x *index[T]) resize(n int) {
	old := x.slots
	x.slots, x.hashFactor, x.hashShift = make([]tagSlot[T], n), rand.Uint64()|1, 64
	for ; n > 1; n /= 2 {
		x.hashShift--
	}
	for _, s := range old {
		if s.head != nil {
			x.slots[x.find(s.tag)] = s
		}
	}
}
