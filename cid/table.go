package cid

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/framework"
)

// State is a Table's state of a Local. It decides about a message that names the Local.
type State uint8

const (
	// Free indices are unused. A message that names one is dropped.
	Free State = iota
	// Withheld indices are candidates of a construct that is not decided here yet. A
	// faster member may send already, so that its message is queued until the index
	// becomes live or is released.
	Withheld
	// Live indices name open communicators.
	Live
	// Quarantined indices name communicators that are closed here, while messages of other
	// members may still come, which are dropped.
	Quarantined
	// Stale indices were used with another generation, or were released. A message that
	// names one is a late one to a closed communicator, and is dropped.
	Stale
)

// Table has the local ids of one process, with the state and the last generation of each
// index. It is safe for concurrent use. It is not on the path of a message. A PML looks up
// only ids for which it has no communicator.
//
// Reserve uses odd indices and WithholdCandidates even ones. Each falls back to the other half when
// its own is full. A process with many lazy communicators therefore still has the same candidate
// ids as its peers.
type Table struct {
	mu         sync.Mutex
	indexCount uint32
	// That of SetLimit.
	limitText string
	// slots grows on demand. Indices beyond it are unused.
	slots       []slot
	stateCounts [Stale]uint32

	// reserveWindow bounds the indices that Reserve cycles through. oddCursor is the next one
	// that it examines.
	reserveWindow uint32
	oddCursor     uint32
	// usedOdd is the number of odd indices that are not free.
	usedOdd uint32
	// lowestEven is a lower bound of the free even indices.
	lowestEven uint32
}

type slot struct {
	// lastGen is the last generation that was live, 0 for none.
	lastGen uint16
	// state is Free, Withheld, Live or Quarantined.
	state State
}

// firstWindow is the initial window of Reserve. The window doubles when half of its odd
// indices are in use. A closed index is therefore reused after at least 1024 others, each time
// with a new generation, so that a Local repeats after more than four million creations. The
// arrays that are indexed by it stay small in a program that opens and closes communicators
// for ever.
const firstWindow = 4096

// NewTable returns an empty table of 1<<indexBits ids. indexBits is limited to the range from
// 0 to IndexBits.
func NewTable(indexBits int) *Table {
	size := uint32(1) << min(max(indexBits, 0), IndexBits)
	return &Table{indexCount: size, reserveWindow: min(firstWindow, size), oddCursor: 1}
}

// SetLimit sets the end of the error of a full table. The text names the cause of the table's
// size and a remedy. It is called before the table is used.
func (t *Table) SetLimit(text string) { t.limitText = text }

// Reserve makes an unused index live, with a new generation, for a communicator whose members
// do not agree on one. If all are in use it returns an error that wraps
// framework.ErrUnsupported.
func (t *Table) Reserve() (Local, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.nextOdd()
	if !ok {
		if i, ok = t.nextEven(); !ok {
			return NoLocal, t.fullError()
		}
	}
	gen := nextGen(t.gen(i))
	t.set(i, Live, gen)
	return MakeLocal(i, gen), nil
}

// Close frees a live id. Other ids, such as one closed before, are ignored.
func (t *Table) Close(l Local) { t.transition(l, Live, Free) }

// Quarantine takes a live id out of use without freeing its index, until EndQuarantine. Other ids
// are ignored.
func (t *Table) Quarantine(l Local) { t.transition(l, Live, Quarantined) }

// EndQuarantine frees a quarantined id. Other ids are ignored.
func (t *Table) EndQuarantine(l Local) { t.transition(l, Quarantined, Free) }

func (t *Table) transition(l Local, from, to State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Valid() && t.stateOf(l) == from {
		t.set(l.Index(), to, l.Gen())
	}
}

// State returns the state of l, which may be any value.
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
	same := l.Gen() == uint32(s.lastGen)
	switch {
	case s.state == Withheld && !same, s.state == Free && s.lastGen == 0:
		return s.state
	case same && (s.state == Live || s.state == Quarantined):
		return s.state
	}
	return Stale
}

// Free returns the number of free indices.
func (t *Table) Free() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.indexCount - t.stateCounts[Withheld] - t.stateCounts[Live] - t.stateCounts[Quarantined])
}

// Counts returns the number of withheld, live and quarantined indices.
func (t *Table) Counts() (withheld, live, quarantined int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.stateCounts[Withheld]), int(t.stateCounts[Live]), int(t.stateCounts[Quarantined])
}

func (t *Table) fullError() error {
	return fmt.Errorf("%w: cid: no communicator id left: %d open, %d quarantined, %d withheld, of the %d that this transport has room for%s",
		framework.ErrUnsupported, t.stateCounts[Live], t.stateCounts[Quarantined], t.stateCounts[Withheld], t.indexCount, cmp.Or(t.limitText, ": close communicators"))
}

// nextOdd returns a free odd index, cycling through the window.
func (t *Table) nextOdd() (uint32, bool) {
	if t.usedOdd == t.indexCount/2 {
		return 0, false
	}
	for t.usedOdd >= t.reserveWindow/4 && t.reserveWindow < t.indexCount {
		t.reserveWindow *= 2
	}
	// The loop ends, because half of the window's odd indices are free, or the window is
	// the whole table and one is free.
	for ; ; t.oddCursor += 2 {
		if t.oddCursor >= t.reserveWindow {
			t.oddCursor = 1
		}
		if t.isFree(t.oddCursor) {
			i := t.oddCursor
			t.oddCursor += 2
			return i, true
		}
	}
}

// nextEven returns the lowest free even index.
func (t *Table) nextEven() (uint32, bool) {
	for ; t.lowestEven < t.indexCount; t.lowestEven += 2 {
		if t.isFree(t.lowestEven) {
			return t.lowestEven, true
		}
	}
	return 0, false
}

// lowestOdd returns the lowest free odd index, for candidates when no even one is free.
func (t *Table) lowestOdd() (uint32, bool) {
	if t.usedOdd == t.indexCount/2 {
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
	return uint32(t.slots[i].lastGen)
}

// set changes the state of a slot and updates the counts.
func (t *Table) set(i uint32, to State, gen uint32) {
	for i >= uint32(len(t.slots)) {
		t.slots = append(t.slots, slot{})
	}
	from := t.slots[i].state
	t.slots[i] = slot{uint16(gen), to}
	t.stateCounts[from]-- // The count of Free is never read, and may wrap.
	t.stateCounts[to]++
	switch wasFree, isFree := from == Free, to == Free; {
	case i%2 == 1 && wasFree && !isFree:
		t.usedOdd++
	case i%2 == 1 && !wasFree && isFree:
		t.usedOdd--
	case i%2 == 0 && isFree:
		t.lowestEven = min(t.lowestEven, i)
	}
}
