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

// team is the memory that the ranks of a process share in one communicator. All ranks execute the
// same phases. A rank arrives in a phase when it has finished its part of the previous ones. A
// phase is complete when all ranks have arrived and its work is done. A rank may leave an operation
// before its last phase is complete, but arrives in the next phase only after that.
type team struct {
	// In ascending order.
	ranks   []int
	members []member
	// Indexed by slotOf.
	posts           []post
	publishedSlices []published
	workingFlags    []paddedFlag // By local rank.
	arrivalCounters [][]counter

	// Without a word, because posts have their phase.
	postGate gate
	// Latest phase in which all ranks have arrived.
	gatheredGate gate
	// Latest phase that is complete.
	releasedGate gate
	work         work

	// isAborted is set permanently when a rank withdraws its slices. isQuiet is set once each rank
	// has been observed outside of the slices of others after that.
	isAborted atomic.Bool
	isQuiet   atomic.Bool
	// Reason why no operation can complete.
	failure atomic.Pointer[error]
}

// postSlots is the number of phases for which a post is retained. A rank posts phase n+2 only
// when all ranks have arrived in phase n+1, and have therefore read the post of phase n.
const postSlots = 2

// maxInline is the size in bytes of the largest operand in a post.
const maxInline = 32

// post is the post of a rank in a phase. It is one aligned cache line without pointers.
type post struct {
	// Phase, counted from 1. It is stored last, atomically.
	phase uint32
	// Operation and root.
	opCode     uint32
	totalBytes uint64 // Args.Size.
	// Bytes of the published slice that may be read. Accessed atomically.
	readyBytes uint64
	_          [8]byte
	// Operand of at most maxInline bytes.
	inlineOperand [maxInline]byte
}

// published has the slices of a larger operand. The rank must not return from the operation while
// others may use them.
type published struct {
	// Operand and result. The result is nil at a rank without one.
	in, out []byte
	_       [16]byte
}

// paddedFlag is a word in a cache line of its own.
type paddedFlag struct {
	value atomic.Uint32
	_     [60]byte
}

// counter counts the arrivals of up to fanIn ranks or lower counters. Each arrival adds 1 to the
// lower half and a checksum of its operation to the upper half. A wrong sum means that the
// operations differ.
type counter struct {
	value atomic.Uint64
	_     [56]byte
}

const fanIn = 8

// gate is a word for which ranks wait, with the list of sleeping ranks.
type gate struct {
	reachedPhase atomic.Uint32
	sleepers     atomic.Pointer[sleeper]
	// Result for operands in posts, used by releasedGate only.
	inlineResult [maxInline]byte
	_            [80]byte
}

// work distributes the chunks of a reduction.
type work struct {
	// Phase in the upper half, next chunk in the lower half.
	chunkClaims atomic.Uint64
	_           [56]byte
	// Number of completed chunks.
	doneChunks atomic.Uint32
	_          [124]byte
}

// member is the shared part of a rank.
type member struct {
	bell progress.RemoteBell
	// isAwaited is set by ranks that sleep until this one posts. A post without it wakes no rank.
	isAwaited atomic.Bool
	sleepers  [gateCount]sleeper
}

// gateCount is the number of gates of a team. A rank may be listed in each.
const gateCount = 3

// sleeper is the entry of a rank in the list of a gate.
type sleeper struct {
	isListed    atomic.Bool
	nextSleeper *sleeper
	bell        *progress.RemoteBell
}

func newTeam(ranks []int) *team {
	n := len(ranks)
	t := &team{ranks: ranks, members: make([]member, n), publishedSlices: make([]published, n*postSlots)}
	t.posts = mem.Of[post](ring.Aligned(n * postSlots * mem.Size[post]()))
	t.workingFlags = mem.Of[paddedFlag](ring.Aligned(n * mem.Size[paddedFlag]()))
	for k := n; k > 1; {
		k = (k + fanIn - 1) / fanIn
		t.arrivalCounters = append(t.arrivalCounters, mem.Of[counter](ring.Aligned(k*mem.Size[counter]())))
	}
	for i := range t.members {
		s := &t.members[i]
		for g := range s.sleepers {
			s.sleepers[g].bell = &s.bell
		}
	}
	return t
}

func slotOf(localRank int, phase uint32) int { return localRank*postSlots + int(phase%postSlots) }

// gate returns a gate by its number.
func (t *team) gate(number int) *gate {
	switch number {
	case postGateIndex:
		return &t.postGate
	case gatheredGateIndex:
		return &t.gatheredGate
	}
	return &t.releasedGate
}

const (
	postGateIndex = iota
	gatheredGateIndex
	releasedGateIndex
)

// hasReached reports whether now is at or after phase. They differ by less than 2^31.
func hasReached(now, phase uint32) bool { return int32(now-phase) >= 0 }

// listForPost lists a rank at postGate that waits for the post of another one.
func (t *team) listForPost(localRank, of int) bool {
	t.members[of].isAwaited.Store(true)
	return t.listSleeper(localRank, postGateIndex)
}

// wakeForPost wakes the ranks that wait for the post of a rank. Without sleeping ranks it costs a
// load.
func (t *team) wakeForPost(localRank int) {
	if s := &t.members[localRank]; s.isAwaited.Load() {
		s.isAwaited.Store(false)
		t.postGate.wake()
	}
}

// listSleeper adds a rank that is about to sleep to a gate. It returns false if the rank was listed
// before. After true, the caller checks its condition again, because a change before the call rang
// no bell.
func (t *team) listSleeper(localRank, number int) bool {
	g, s := t.gate(number), &t.members[localRank].sleepers[number]
	if s.isListed.Load() || !s.isListed.CompareAndSwap(false, true) {
		return false
	}
	for {
		s.nextSleeper = g.sleepers.Load()
		if g.sleepers.CompareAndSwap(s.nextSleeper, s) {
			return true
		}
	}
}

// wake rings the bells of the sleeping ranks. The caller has changed their condition by a
// sequentially consistent operation. Without sleeping ranks it costs a load.
func (g *gate) wake() {
	if g.sleepers.Load() == nil {
		return
	}
	for s := g.sleepers.Swap(nil); s != nil; {
		next, bell := s.nextSleeper, s.bell
		s.isListed.Store(false)
		bell.Ring()
		s = next
	}
}

// completePhase completes a phase.
func (t *team) completePhase(phase uint32) {
	t.releasedGate.reachedPhase.Store(phase)
	t.releasedGate.wake()
}

// fail ends all waits with err, or with the first error if fail was called before.
func (t *team) fail(err error) error {
	t.failure.CompareAndSwap(nil, &err)
	t.postGate.wake()
	t.gatheredGate.wake()
	t.releasedGate.wake()
	return *t.failure.Load()
}

func (t *team) failureErr() error {
	if err := t.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// arrive counts the arrival of a rank that has posted in a phase. add is the checksum of its
// operation, and sum the sum of those so far. last reports whether all ranks have arrived.
func (t *team) arrive(localRank int, phase uint32, add, sum uint64) (last bool, err error) {
	below, first, span := len(t.ranks), 0, 1
	at := localRank
	for _, level := range t.arrivalCounters {
		group := at / fanIn
		k := uint64(min(fanIn, below-group*fanIn))
		span *= fanIn
		first = group * span
		switch now := level[group].value.Add(add); {
		case uint32(now) != uint32(k*sum):
			return false, nil
		case now != k*sum:
			return false, t.fail(t.findDifference(phase, first, min(first+span, len(t.ranks))))
		}
		at, below = group, len(level)
	}
	return true, nil
}

// findDifference returns the error for operations that differ among ranks first to end-1, which have all
// posted in a phase.
func (t *team) findDifference(phase uint32, first, end int) error {
	a := &t.posts[slotOf(first, phase)]
	for localRank := first + 1; localRank < end; localRank++ {
		if b := &t.posts[slotOf(localRank, phase)]; a.opCode != b.opCode || a.totalBytes != b.totalBytes {
			return differError(t.ranks[first], a, t.ranks[localRank], b)
		}
	}
	return errors.New("members called different collectives: members must pass equal arguments")
}

func differError(rank int, a *post, other int, b *post) error {
	return fmt.Errorf("rank %d called %s of %d bytes and rank %d called %s of %d bytes: members must pass equal arguments",
		rank, codeName(a.opCode), a.totalBytes, other, codeName(b.opCode), b.totalBytes)
}

// codeOf returns the code of an operation and its root.
func codeOf(op coll.Operation, root int) int { return int(uint32(op) | uint32(root)<<8) }

func codeName(c uint32) string {
	if c&0xff >= uint32(coll.Operations) {
		return "no operation"
	}
	return fmt.Sprintf("%v (root %d)", coll.Operation(c&0xff), c>>8)
}

// checksum returns the value that an arrival adds to counters.
func checksum(code uint32, total uint64) uint64 {
	h := (uint64(code)+1)*0x9E3779B97F4A7C15 ^ (total+1)*0xC2B2AE3D27D4EB4F
	return h&^(1<<32-1) | 1
}
