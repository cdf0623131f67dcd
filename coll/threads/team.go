package threads

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

// team is the memory that the ranks of a process share in one communicator. Ranks do the same
// rounds. A rank arrives in a round when it has done its part of the rounds before, and a round
// is complete when all ranks have arrived and what they wait for is done. A rank may leave an operation before its
// last round is complete, but arrives in the next round only then.
type team struct {
	ranks    []int // By seat, ascending.
	seats    []seat
	lines    []line // By slot: see slotOf.
	slices   []published
	working  []flag // By seat.
	counters [][]counter

	posts    gate // Word unused: lines are posted.
	gathered gate // The last round in which all have arrived.
	released gate // The last round that is complete.
	work     work

	// isAborted is set for good when a rank withdraws its slices. isQuiet: since then each
	// rank has been seen outside of the others' slices.
	isAborted atomic.Bool
	isQuiet   atomic.Bool
	failure   atomic.Pointer[error] // The reason why no operation can complete.
}

// slots is the number of rounds in which a rank's line is kept. It posts the next round but one
// only when all have arrived in the next one, and so have read the line.
const slots = 2

// inlineMost is the largest operand that lies in a line, in bytes.
const inlineMost = 32

// line is what a rank posts in a round: one cache line without pointers, so that it begins at one.
type line struct {
	posted uint32 // The round, counted from 1. Written last, atomically.
	code   uint32 // Operation and root.
	total  uint64 // Args.Size
	ready  uint64 // Bytes of the published slice that may be read; changed atomically.
	_      [8]byte
	data   [inlineMost]byte // The operand if it is not longer.
}

// published are the slices of a larger operand. The rank must not return from the operation while
// others may use them.
type published struct {
	in, out []byte // The operand, and where the result comes; nil if the rank gets none.
	_       [16]byte
}

// flag is a word in a cache line of its own, and counter likewise.
type flag struct {
	v atomic.Uint32
	_ [60]byte
}

// counter counts the arrivals of up to fanIn ranks or counters below. Each arrival adds 1, and a
// checksum of its operation to the upper half. A wrong sum shows that operations differ.
type counter struct {
	v atomic.Uint64
	_ [56]byte
}

const fanIn = 8

// gate is a word that ranks wait for, and the ranks that sleep.
type gate struct {
	word     atomic.Uint32
	sleepers atomic.Pointer[sleeper]
	result   [inlineMost]byte // Of released, for operands that lie in lines.
	_        [80]byte
}

// work distributes the chunks of a reduction.
type work struct {
	claims atomic.Uint64 // Round, and the next chunk in the lower half.
	_      [56]byte
	done   atomic.Uint32 // Chunks that are complete.
	_      [124]byte
}

// seat is the part of a rank that the others use.
type seat struct {
	bell progress.RemoteBell
	// isAwaited is set by ranks that sleep until this one posts. Others need not be woken when
	// it does.
	isAwaited atomic.Bool
	sleepers  [gates]sleeper
}

// gates is the number of gates of a team. A rank may be listed in each.
const gates = 3

// sleeper lists a rank at a gate.
type sleeper struct {
	isListed atomic.Bool
	next     *sleeper
	bell     *progress.RemoteBell
}

func newTeam(ranks []int) *team {
	n := len(ranks)
	t := &team{ranks: ranks, seats: make([]seat, n), slices: make([]published, n*slots)}
	t.lines = mem.Of[line](ring.Aligned(n * slots * mem.Size[line]()))
	t.working = mem.Of[flag](ring.Aligned(n * mem.Size[flag]()))
	for k := n; k > 1; {
		k = (k + fanIn - 1) / fanIn
		t.counters = append(t.counters, mem.Of[counter](ring.Aligned(k*mem.Size[counter]())))
	}
	for i := range t.seats {
		s := &t.seats[i]
		for g := range s.sleepers {
			s.sleepers[g].bell = &s.bell
		}
	}
	return t
}

func slotOf(seat int, round uint32) int { return seat*slots + int(round%slots) }

// gate returns one of the gates by its number.
func (t *team) gate(number int) *gate {
	switch number {
	case postsGate:
		return &t.posts
	case gatheredGate:
		return &t.gathered
	}
	return &t.released
}

const (
	postsGate = iota
	gatheredGate
	releasedGate
)

// reached reports whether a round is, of two that are less than 2^31 apart.
func reached(now, round uint32) bool { return int32(now-round) >= 0 }

// listForPost is list at posts for a rank that waits for the post of another one.
func (t *team) listForPost(seat, of int) bool {
	t.seats[of].isAwaited.Store(true)
	return t.list(seat, postsGate)
}

// hasPosted wakes the ranks that wait for the post of a seat. Cost if none sleeps: a load.
func (t *team) hasPosted(seat int) {
	if s := &t.seats[seat]; s.isAwaited.Load() {
		s.isAwaited.Store(false)
		t.posts.wake()
	}
}

// list lists a rank that is about to sleep. It returns whether it has done so just now. The
// caller then checks again what it waits for: whoever changes that afterwards rings.
func (t *team) list(seat, number int) bool {
	g, s := t.gate(number), &t.seats[seat].sleepers[number]
	if s.isListed.Load() || !s.isListed.CompareAndSwap(false, true) {
		return false
	}
	for {
		s.next = g.sleepers.Load()
		if g.sleepers.CompareAndSwap(s.next, s) {
			return true
		}
	}
}

// wake rings the bells of the ranks that sleep. Their condition has been changed before by a
// sequentially consistent operation. Cost if none sleeps: a load.
func (g *gate) wake() {
	if g.sleepers.Load() == nil {
		return
	}
	for s := g.sleepers.Swap(nil); s != nil; {
		next, bell := s.next, s.bell
		s.isListed.Store(false)
		bell.Ring()
		s = next
	}
}

// release completes a round.
func (t *team) release(round uint32) {
	t.released.word.Store(round)
	t.released.wake()
}

// fail ends all waits with an error, the first one.
func (t *team) fail(err error) error {
	t.failure.CompareAndSwap(nil, &err)
	t.posts.wake()
	t.gathered.wake()
	t.released.wake()
	return *t.failure.Load()
}

func (t *team) failed() error {
	if err := t.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// arrive counts the arrival of a seat in a round, in which it has posted. add is the checksum of
// its operation, and sum the total of those so far. last reports whether all ranks have
// arrived.
func (t *team) arrive(seat int, round uint32, add, sum uint64) (last bool, err error) {
	below, first, span := len(t.ranks), 0, 1
	at := seat
	for _, level := range t.counters {
		group := at / fanIn
		k := uint64(min(fanIn, below-group*fanIn))
		span *= fanIn
		first = group * span
		switch now := level[group].v.Add(add); {
		case uint32(now) != uint32(k*sum):
			return false, nil
		case now != k*sum:
			return false, t.fail(t.differs(round, first, min(first+span, len(t.ranks))))
		}
		at, below = group, len(level)
	}
	return true, nil
}

// differs returns the error for operations that differ between seats that have all posted in a
// round, from first to end.
func (t *team) differs(round uint32, first, end int) error {
	a := &t.lines[slotOf(first, round)]
	for seat := first + 1; seat < end; seat++ {
		if b := &t.lines[slotOf(seat, round)]; a.code != b.code || a.total != b.total {
			return different(t.ranks[first], a, t.ranks[seat], b)
		}
	}
	return errors.New("members called different collectives: members must pass equal arguments")
}

func different(rank int, a *line, other int, b *line) error {
	return fmt.Errorf("rank %d is in %s of %d bytes where rank %d is in %s of %d: members must pass equal arguments",
		rank, codeName(a.code), a.total, other, codeName(b.code), b.total)
}

// codeOf identifies an operation and its root.
func codeOf(op coll.Operation, root int) int { return int(uint32(op) | uint32(root)<<8) }

func codeName(c uint32) string {
	if c&0xff >= uint32(coll.Operations) {
		return "no operation"
	}
	return fmt.Sprintf("%v (root %d)", coll.Operation(c&0xff), c>>8)
}

// checksum returns what an arrival adds to counters.
func checksum(code uint32, total uint64) uint64 {
	h := (uint64(code)+1)*0x9E3779B97F4A7C15 ^ (total+1)*0xC2B2AE3D27D4EB4F
	return h&^(1<<32-1) | 1
}
