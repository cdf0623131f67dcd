package progress

import (
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/doorbell"
)

// A goroutine that changes memory that other ranks wait for rings their bells. It may hold the lock of its own rank, under which no other rank's lock may
// be acquired. Ring therefore only queues the rank. Goroutines of the process deliver to queued ranks when they hold no rank's lock, in Release, Flush,
// and all waits of ranks.

// RankBell returns the bell of a rank's engine. Ring delivers to the rank if waits are parked,
// or operations are in the background, and no wait polls. It may be called with or without the lock of one
// rank's engine. With it, the delivery follows the release of the lock by Release; without it, the
// caller calls Flush.
func (e *Engine) RankBell() RemoteBell {
	return RemoteBell{bell: doorbell.Watch(&e.rankPart.pollWord.parkedCount), rankEngine: e}
}

// AddBackground changes the number of pending operations of a rank that advance without a wait when its bell is rung. After an increase the caller polls
// the sources before it releases the lock, because no bell is rung for earlier work. Lock held.
func (e *Engine) AddBackground(n int) { e.rankPart.pollWord.addParked(n) }

// rings is the queue of the ranks of a process that are due for delivery.
type rings struct{ firstRank atomic.Pointer[rank] }

// ringRank queues the rank unless it is queued already. In that case it is polled after this
// call, since the goroutine that removes it from the queue clears the flag before the poll.
func (e *Engine) ringRank() {
	r := e.rankPart
	if r.pollWord.Polled() || !r.isQueued.CompareAndSwap(false, true) {
		return
	}
	r.engine = e
	q := &e.processEngine.dueRanks
	for {
		r.nextQueued = q.firstRank.Load()
		if q.firstRank.CompareAndSwap(r.nextQueued, r) {
			return
		}
	}
}

// Flush delivers to the ranks whose bells were rung. The caller holds no engine's lock. Without such ranks, and for the engine of a process, it costs one
// load.
func (e *Engine) Flush() {
	if e.rankPart != nil && e.processEngine.dueRanks.firstRank.Load() != nil {
		e.processEngine.deliverRung(false)
	}
}

// executions are for goroutines that deliver to rung ranks.
var executions = sync.Pool{New: func() any { return new(Tasks) }}

// deliverRung delivers to the queued ranks, including those that are rung during the call, and runs the tasks that this causes. The caller holds no
// rank's lock.
func (e *Engine) deliverRung(processLocked bool) {
	t := executions.Get().(*Tasks)
	t.processLocked = processLocked
	for first := e.dueRanks.firstRank.Swap(nil); first != nil; first = e.dueRanks.firstRank.Swap(nil) {
		for r := first; r != nil; {
			next, to := r.nextQueued, r.engine
			r.isQueued.Store(false)
			t.Deliver(to)
			r = next
		}
		t.execute()
	}
	executions.Put(t)
}
