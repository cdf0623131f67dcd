package match

import "math/rand/v2"

// index finds the entries of a list by tag: a hash table with open addressing, one slot
// for each tag, AnyTag among them, with the entries of that tag in the list's order. It
// is on while the list is long; when the list gets short it keeps only its memory.
type index[T any] struct {
	on      bool
	slots   []slot[T] // a power of two of them
	shift   uint8     // 64 less the bits of a position
	factor  uint64    // of the hash: odd, random, so that no peer can choose tags that collide
	used    int       // slots
	most    int       // used, since it is on
	entries int
}

type slot[T any] struct {
	tag        int
	head, tail *Entry[T] // nil: free
}

const (
	// longWalk is how many entries a walk passes before the list gets an index. A step
	// costs about 1 ns if the entry is in the cache, 5 to 80 if not; a lookup some 10.
	longWalk = 32
	// shortList is how many entries are found as fast without an index.
	shortList = 8
	// fewSlots is the smallest table.
	fewSlots = 4 * longWalk
)

// lookup is first by the index, which it makes if there is none.
func (l *list[T]) lookup(tag, chain int) *Entry[T] {
	x := l.index
	if x == nil {
		x = &index[T]{}
		l.index = x
	}
	if !x.on {
		x.begin()
		l.each(chain, func(e *Entry[T]) { x.add(e, chain) })
	}
	r, any := x.slots[x.find(tag)].head, x.slots[x.find(AnyTag)].head
	if r == nil || any != nil && any.stamp < r.stamp {
		return any
	}
	return r
}

// begin switches an empty index on.
func (x *index[T]) begin() {
	x.on, x.most = true, 0
	if x.slots == nil {
		x.resize(fewSlots)
	}
}

// end switches it off. A table that was mostly empty goes.
func (x *index[T]) end() {
	x.on = false
	if len(x.slots) > fewSlots && x.most < len(x.slots)/8 {
		x.slots = nil
	} else if x.used > 0 {
		clear(x.slots)
	}
	x.used, x.entries = 0, 0
}

// find returns the position of tag, or of the free slot where it would be.
func (x *index[T]) find(tag int) int {
	mask := len(x.slots) - 1
	at := x.home(tag)
	for x.slots[at].head != nil && x.slots[at].tag != tag {
		at = (at + 1) & mask
	}
	return at
}

// home is where the search for tag begins.
func (x *index[T]) home(tag int) int { return int(uint64(tag) * x.factor >> x.shift) }

// add appends e to those of its tag, if the index is on.
func (x *index[T]) add(e *Entry[T], chain int) {
	if !x.on {
		return
	}
	s := &x.slots[x.find(e.Tag)]
	x.entries++
	e.alike[chain] = links[T]{prev: s.tail}
	if s.head != nil {
		s.tail.alike[chain].next = e
		s.tail = e
		return
	}
	s.tag, s.head, s.tail = e.Tag, e, e
	if x.used++; x.used > x.most {
		x.most = x.used
	}
	if 2*x.used > len(x.slots) {
		x.resize(2 * len(x.slots))
	}
}

// remove takes e out, if the index is on.
func (x *index[T]) remove(e *Entry[T], chain int) {
	if !x.on {
		return
	}
	at := e.alike[chain]
	e.alike[chain] = links[T]{}
	if at.prev != nil {
		at.prev.alike[chain].next = at.next
	}
	if at.next != nil {
		at.next.alike[chain].prev = at.prev
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
	if x.entries--; x.entries < shortList {
		x.end()
	}
}

// free empties a slot, and moves those behind it up, so that no search ends too early.
func (x *index[T]) free(at int) {
	x.used--
	mask := len(x.slots) - 1
	for next := (at + 1) & mask; x.slots[next].head != nil; next = (next + 1) & mask {
		// A slot may move to at if its search begins there or before.
		if home := x.home(x.slots[next].tag); (next-home)&mask >= (next-at)&mask {
			x.slots[at] = x.slots[next]
			at = next
		}
	}
	x.slots[at] = slot[T]{}
}

// resize makes a table of n slots.
func (x *index[T]) resize(n int) {
	old := x.slots
	x.slots, x.factor, x.shift = make([]slot[T], n), rand.Uint64()|1, 64
	for ; n > 1; n /= 2 {
		x.shift--
	}
	for _, s := range old {
		if s.head != nil {
			x.slots[x.find(s.tag)] = s
		}
	}
}
