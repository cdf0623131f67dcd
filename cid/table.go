package cid

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/framework"
)

// State is what a Table knows about a Local, and so what becomes of a message
// that names it.
type State uint8

const (
	// Free: nobody uses the index. A message that names it is dropped.
	Free State = iota
	// Withheld: the index is in the offer of a construct that isn't decided
	// here yet, while a faster member may send already. A message is kept until
	// the index goes live or the offer is released.
	Withheld
	// Live: the id of an open communicator.
	Live
	// Resting: the communicator is closed here, and other members' close
	// markers are still to come. A message is dropped.
	Resting
	// Stale: the index has been used, but not under this generation, or no
	// longer. A message is a late one to a closed communicator, and is dropped.
	Stale
)

// Table is one process's local ids: which are in use, which rest, and which
// generation each index had last. It is safe for concurrent use. It is not on
// the path of a message: a PML asks it only about ids it has no communicator
// for.
//
// Odd indices go to Reserve and even ones to Offer, and either takes the
// other's when its own are used up. So a process that has many lazy
// communicators still offers the indices that its peers offer, too.
type Table struct {
	mu     sync.Mutex
	size   uint32
	limit  string // see SetLimit; may be empty
	slots  []slot // grown on demand; an index beyond it was never used
	counts [Stale]uint32

	window uint32 // Reserve goes round below it
	cursor uint32 // the odd index that Reserve looks at next
	odd    uint32 // odd indices that aren't free
	low    uint32 // no even index below it is free
}

type slot struct {
	gen   uint16 // the last generation that was live; 0: none ever
	state State  // Free, Withheld, Live or Resting
}

// firstWindow is how many indices Reserve goes round at first; the window
// doubles whenever half of its odd ones are taken. A closed index is thus used
// again after at least 1024 others, each time with a new generation, so that a
// Local comes back after more than four million creations; and the arrays that
// are indexed by it stay small in a program that opens and closes for ever.
const firstWindow = 4096

// NewTable returns an empty table of 1<<indexBits ids. What is below 0 counts
// as 0, what is above IndexBits as IndexBits.
func NewTable(indexBits int) *Table {
	size := uint32(1) << min(max(indexBits, 0), IndexBits)
	return &Table{size: size, window: min(firstWindow, size), cursor: 1}
}

// SetLimit says what sets the size of the table, and what a user can do about it: the
// end of the error of a table that is full. It is called before the table is used.
func (t *Table) SetLimit(text string) { t.limit = text }

// Reserve makes an index of this process's own choice live, with a new
// generation: for a communicator whose members do not agree on one. When all
// are in use it returns an error that wraps framework.ErrUnsupported.
func (t *Table) Reserve() (Local, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.nextOdd()
	if !ok {
		if i, ok = t.nextEven(); !ok {
			return NoLocal, t.full()
		}
	}
	gen := nextGen(t.gen(i))
	t.set(i, Live, gen)
	return MakeLocal(i, gen), nil
}

// Close frees a live id. Any other id, such as one closed before, is ignored.
func (t *Table) Close(l Local) { t.move(l, Live, Free) }

// Rest takes a live id out of use without freeing its index yet: close markers
// of other members are to come. Any other id is ignored.
func (t *Table) Rest(l Local) { t.move(l, Live, Resting) }

// Rested frees the index of a resting id: all markers have come. Any other id
// is ignored.
func (t *Table) Rested(l Local) { t.move(l, Resting, Free) }

func (t *Table) move(l Local, from, to State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Valid() && t.stateOf(l) == from {
		t.set(l.Index(), to, l.Gen())
	}
}

// State returns what the table knows about l, which may come from anywhere.
func (t *Table) State(l Local) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stateOf(l)
}

func (t *Table) stateOf(l Local) State {
	if !l.Valid() || l.Index() >= uint32(len(t.slots)) {
		return Free
	}
	s := t.slots[l.Index()]
	same := l.Gen() == uint32(s.gen)
	switch {
	case s.state == Withheld && !same, s.state == Free && s.gen == 0:
		return s.state
	case same && (s.state == Live || s.state == Resting):
		return s.state
	}
	return Stale
}

// Free returns the number of free indices.
func (t *Table) Free() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.size - t.counts[Withheld] - t.counts[Live] - t.counts[Resting])
}

// Counts returns how many indices are in each state but Free and Stale.
func (t *Table) Counts() (withheld, live, resting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.counts[Withheld]), int(t.counts[Live]), int(t.counts[Resting])
}

func (t *Table) full() error {
	return fmt.Errorf("%w: cid: no communicator id left: %d open, %d resting, %d withheld, of the %d that this transport has room for%s",
		framework.ErrUnsupported, t.counts[Live], t.counts[Resting], t.counts[Withheld], t.size, cmp.Or(t.limit, ": close communicators"))
}

// nextOdd finds a free odd index, going round in the window.
func (t *Table) nextOdd() (uint32, bool) {
	if t.odd == t.size/2 {
		return 0, false
	}
	for t.odd >= t.window/4 && t.window < t.size {
		t.window *= 2
	}
	// Half the odd indices of the window are free, or the window is the table
	// and one is: the loop ends.
	for ; ; t.cursor += 2 {
		if t.cursor >= t.window {
			t.cursor = 1
		}
		if t.isFree(t.cursor) {
			i := t.cursor
			t.cursor += 2
			return i, true
		}
	}
}

// nextEven finds the lowest free even index.
func (t *Table) nextEven() (uint32, bool) {
	for ; t.low < t.size; t.low += 2 {
		if t.isFree(t.low) {
			return t.low, true
		}
	}
	return 0, false
}

// lowestOdd finds the lowest free odd index: an offer's last resort.
func (t *Table) lowestOdd() (uint32, bool) {
	if t.odd == t.size/2 {
		return 0, false
	}
	for i := uint32(1); ; i += 2 {
		if t.isFree(i) {
			return i, true
		}
	}
}

func (t *Table) isFree(i uint32) bool {
	return i >= uint32(len(t.slots)) || t.slots[i].state == Free
}

func (t *Table) gen(i uint32) uint32 {
	if i >= uint32(len(t.slots)) {
		return 0
	}
	return uint32(t.slots[i].gen)
}

// set changes the state of a slot and keeps the books.
func (t *Table) set(i uint32, to State, gen uint32) {
	for i >= uint32(len(t.slots)) {
		t.slots = append(t.slots, slot{})
	}
	from := t.slots[i].state
	t.slots[i] = slot{uint16(gen), to}
	t.counts[from]-- // Free's count is never read, and may wrap
	t.counts[to]++
	switch wasFree, isFree := from == Free, to == Free; {
	case i%2 == 1 && wasFree && !isFree:
		t.odd++
	case i%2 == 1 && !wasFree && isFree:
		t.odd--
	case i%2 == 0 && isFree:
		t.low = min(t.low, i)
	}
}
