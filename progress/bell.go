package progress

import (
	"errors"
	"sync"

	"github.com/ferrympi/ferry/internal/doorbell"
)

// Bell wakes a process that sleeps. Each process's engine has one. A goroutine or a
// process that publishes work for a source rings it.
type Bell struct {
	engine *Engine

	// mu keeps the memory of currentBell in place while a goroutine without the engine's lock
	// rings. Changing currentBell requires both.
	mu          sync.Mutex
	currentBell doorbell.Bell
	// A module has provided the memory of currentBell.
	isShared bool
}

// BellSize is the number of bytes that a bell takes in memory which processes share.
const BellSize = doorbell.Size

var errShared = errors.New("the engine's bell is already in the memory of another module; an engine has one bell")

// Ring makes the engine poll all its sources soon. Publish the work before calling Ring.
// Any goroutine may call it, with or without locks.
func (b *Bell) Ring() {
	b.engine.progressGoroutine.wake()
	b.mu.Lock()
	b.currentBell.Ring()
	b.mu.Unlock()
}

// Armed reports whether the process is asleep, or about to sleep after the next Poll. For a rank it reports whether waits have stopped polling, so
// that a RankBell must be rung. Lock held. It costs one or two loads.
func (b *Bell) Armed() bool {
	if r := b.engine.rankPart; r != nil {
		return r.pollWord.HasParked() && !r.pollWord.Polled()
	}
	return b.currentBell.Armed()
}

// Share moves the bell to mem, where other processes ring it by BellAt. mem has BellSize zero bytes at a multiple of 4. It belongs to the bell until
// release returns. release may wait for a goroutine that rings, and has no effect when it is called again. One module of an engine can share the bell.
// Others get an error. Share and release are called without the engine's lock.
func (b *Bell) Share(mem []byte) (release func(), err error) {
	b.engine.Lock()
	defer b.engine.Unlock()
	if b.isShared {
		return nil, errShared
	}
	shared := doorbell.At(mem)
	b.move(shared, true)
	return sync.OnceFunc(func() {
		b.engine.Lock()
		b.move(doorbell.New(), false)
		b.engine.Unlock()
		b.engine.progressGoroutine.leaveBell(shared)
	}), nil
}

// move changes the bell's memory. The progress goroutine may sleep on the old bell. Lock held.
func (b *Bell) move(to doorbell.Bell, shared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.currentBell
	b.currentBell, b.isShared = to, shared
	old.Ring()
}

// RemoteBell is the bell of another process, in memory that it shares, or of a rank of this
// process (Engine.RankBell).
type RemoteBell struct {
	// For a rank, only its armed word is used.
	bell doorbell.Bell
	// nil for a process.
	rankEngine *Engine
}

// BellAt returns the bell that its owner has passed to Bell.Share, at its address in this process. The BellSize bytes of mem stay mapped while the
// result is in use.
func BellAt(mem []byte) RemoteBell { return RemoteBell{bell: doorbell.At(mem)} }

// Ordered reports whether Ring requires that the work was published by a sequentially
// consistent operation, or that cpu.Barrier follows the store. It is true for ranks, which do
// not poll once more as a Lagging source does.
func (b RemoteBell) Ordered() bool { return b.rankEngine != nil }

// Ring wakes the owner if it is asleep. Publish the work before calling Ring, by an atomic operation or for a source that is Lagging. The cost for an
// owner that is awake is one load of a cache line that is seldom written.
func (b RemoteBell) Ring() {
	if b.bell.Armed() {
		b.wake()
	}
}

func (b RemoteBell) wake() {
	if b.rankEngine != nil {
		b.rankEngine.ringRank()
	} else {
		b.bell.Ring()
	}
}
