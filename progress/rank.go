package progress

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/doorbell"
)

// Ranks that are goroutines have an engine each, with its own lock, completions and sources, and without a progress goroutine and a doorbell.
//
// # Locks
//
// The lock of the process's engine is acquired before the lock of one rank, never after
// it, and no goroutine holds the locks of two ranks. Work that needs another lock is
// deferred (Engine.Defer) until the rank's lock has been released.
//
// # Delivery
//
// A goroutine that publishes work for a rank
//
//  1. publishes it, by an operation of sync/atomic, where the rank's sources find it;
//  2. then loads the rank's PollWord;
//  3. calls Deliver if no wait polls for the rank. Deliver polls the rank's sources under
//     the rank's lock, which completes requests and wakes the goroutines that wait for
//     them.
//
// A wait that polls for the rank sets the word before its first poll. When it stops, it clears the word and then polls once more. These operations are
// sequentially consistent, so that either the publishing goroutine finds the word cleared, or the last poll finds the published work. While a wait
// polls, other waits of the rank may be parked. The polling wait completes and wakes them, too. Between the last poll and parking there is no gap,
// since Deliver needs the lock.
//
// Engine.Deliver is steps 2 and 3. A goroutine that holds the rank's lock already may
// complete requests directly, for example the upcall of a PML below that holds the
// process's lock. It then releases the rank's lock by Release or ReleaseUnder.

// PollWord is the word of a rank with its polling and parked waits. It is in its owner's memory, next to the data that senders write, so that they need
// no further cache line.
type PollWord struct {
	isPolled atomic.Uint32
	// Of waits that are parked, or about to be, and background operations.
	parkedCount atomic.Uint32
}

// Polled reports whether a wait polls for the rank. That wait finds the work published before the call.
func (w *PollWord) Polled() bool { return w.isPolled.Load() != 0 }

// HasParked reports whether waits of the rank are parked, or operations are in the background (Engine.AddBackground). If not, a goroutine need not deliver
// for their sake, because the rank's sources are polled after a wait has been counted and before it parks.
func (w *PollWord) HasParked() bool { return w.parkedCount.Load() != 0 }

func (w *PollWord) addParked(n int) { w.parkedCount.Add(uint32(n)) }

// rank is the part of an Engine that only ranks have. Guarded by the rank's lock.
type rank struct {
	pollWord *PollWord
	// The last active wait was ended by a poll of the process's engine.
	endedRemotely bool
	// hasProcessToken is set while the polling wait has the poll token of the process's engine.
	hasProcessToken bool
	taskQueue       taskQueue

	// Of ringRank; guarded by isQueued.
	isQueued   atomic.Bool
	engine     *Engine
	nextQueued *rank
}

// NewRank returns the engine of one rank of the process. s is its first source, which receives the work of other goroutines, and w the rank's word. Close
// ends it after all waits. Waits, Progress and Deliver poll its sources. Optional interfaces of sources (Descriptor, Polled, Timed, Lagging) have no
// effect, nor have Nudge and Bell.Ring of a rank's engine.
func (e *Engine) NewRank(s Source, w *PollWord) *Engine {
	both := &struct {
		Engine
		rank
	}{}
	r := &both.Engine
	r.processEngine, r.rankPart = e, &both.rank
	r.rankPart.pollWord = w
	r.sources = []Source{s}
	r.yieldTime, r.profileLabels = e.yieldTime, e.profileLabels
	r.bell.engine, r.bell.currentBell = r, neverArmed
	openRanks.Add(1)
	updateProcessors()
	r.pollBudget = r.currentPollBudget()
	return r
}

// neverArmed is the Bell of all ranks. Sleepers do not use it, see RankBell.
var neverArmed = doorbell.New()

func (e *Engine) closeRank() {
	openRanks.Add(-1)
	e.Lock()
	e.isClosed = true
	e.Unlock()
}

// Deliver ensures that work published for the rank is processed soon, by the wait that polls for the rank, or else by this call. The caller holds no
// engine's lock.
func (e *Engine) Deliver() {
	if !e.rankPart.pollWord.Polled() {
		e.Lock()
		e.poll()
		e.Release()
	}
}

// DeliverUnder is Deliver for a caller that holds the lock of the process's engine.
func (e *Engine) DeliverUnder() {
	if !e.rankPart.pollWord.Polled() {
		e.Lock()
		e.poll()
		e.ReleaseUnder()
	}
}

// At most GOMAXPROCS waits of ranks poll at a time. While there are at most as many ranks,
// that needs no count, since one wait at a time polls for a rank.
var (
	openRanks  atomic.Int32 // In this operating-system process.
	processors atomic.Int32 // GOMAXPROCS. Reading it takes a lock of the runtime.
	permits    atomic.Int32 // Held by waits that began with more ranks than processors.
)

func updateProcessors() {
	if n := int32(runtime.GOMAXPROCS(0)); n != processors.Load() {
		processors.Store(n)
	}
}

func ranksOversubscribed() bool { return openRanks.Load() > processors.Load() }

// pollPermit is the permission of a wait to poll.
type pollPermit struct{ isCounted bool }

// acquire reports whether the wait may poll. A polling wait calls it again, because more ranks may have been opened. false means that the wait must
// stop polling.
func (p *pollPermit) acquire() bool {
	if p.isCounted || !ranksOversubscribed() {
		return true
	}
	if permits.Add(1) > processors.Load() {
		permits.Add(-1)
		return false
	}
	p.isCounted = true
	return true
}

func (p *pollPermit) release() {
	if p.isCounted {
		p.isCounted = false
		permits.Add(-1)
	}
}

// activeRank is active for the engine of a rank. It returns at once if the wait may not
// poll.
func (e *Engine) activeRank(ctx context.Context, done *bool, first Source) (err error) {
	var permit pollPermit
	if !permit.acquire() {
		return nil
	}
	r := e.rankPart
	pace := newPace(ctx, e)
	e.pollBudget = e.currentPollBudget()
	perOther := pollsPerOther
	if r.endedRemotely || pace.isYielding {
		perOther = 1
	}
	session := e.startPollingRank()
	for i := 1; ; i++ {
		n := e.poll()
		if first != nil && !*done {
			n += first.Poll()
		}
		e.runTasks(e)
		if e.pollSessions != session || !e.pollToken.isSet() { // A long task has returned the tokens.
			if *done || e.pollToken.isSet() {
				permit.release()
				return nil
			}
			session = e.startPollingRank()
		}
		if *done {
			r.endedRemotely = false
			break
		}
		if i%perOther == 0 {
			n += e.pollProcess()
			if *done {
				r.endedRemotely = true
				break
			}
		}
		if e.Wanted() {
			e.admitLockWaiters()
		}
		if n == 0 && pace.isYielding {
			e.Unlock()
			pace.yieldProcessor()
			e.Lock()
			perOther = 1
		} else if n == 0 {
			cpu.Pause()
		}
		if *done {
			break
		}
		var stop bool
		if stop, err = pace.next(n, &permit); stop {
			break
		}
	}
	e.stopPollingRank()
	permit.release()
	if *done {
		return nil
	}
	return err
}

// startPollingRank takes the poll token of a rank's engine, and returns the number of the
// session. Until the token is returned polls is that number. Lock held.
func (e *Engine) startPollingRank() (session uint64) {
	e.pollToken.set()
	e.pollSessions++
	e.rankPart.pollWord.isPolled.Store(1)
	return e.pollSessions
}

// stopPollingRank returns the poll token of a rank's engine, and that of the process's engine
// if the wait has it. Lock held, possibly released meanwhile.
func (e *Engine) stopPollingRank() {
	if e.rankPart.hasProcessToken {
		e.rankPart.hasProcessToken = false
		e.stopPollingProcess()
	}
	e.clearPollingRank()
	e.poll() // Work published before the word was cleared.
	e.runTasks(nil)
}

func (e *Engine) clearPollingRank() {
	e.pollToken.clear()
	e.rankPart.pollWord.isPolled.Store(0)
}

// returnTokens implements poller for the wait that polls.
func (e *Engine) returnTokens() {
	e.Lock()
	e.stopPollingRank()
	e.Unlock()
}

// pollProcess polls the process's engine if its lock is free and no other wait polls it.
// The first such poll takes its poll token, which stopPollingRank returns. The rank's lock is
// held, and released meanwhile.
func (e *Engine) pollProcess() (n int) {
	p, token := e.processEngine, &e.rankPart.hasProcessToken
	e.Unlock()
	if p.TryLock() {
		if !*token && !p.pollToken.isSet() {
			p.pollToken.set()
			p.pollSessions++
			*token = true
		}
		if *token {
			n = p.poll()
		}
		p.Unlock()
	}
	e.Lock()
	return n
}

// stopPollingProcess returns the poll token of the process's engine. It does not wake the progress goroutine if only ranks are parked, because that would
// be a wake-up for each message while ranks are oversubscribed. The next wait of a rank polls for them, or the progress goroutine after its tick. A wait
// that parks wakes it. The rank's lock is held, and released meanwhile.
func (e *Engine) stopPollingProcess() {
	p := e.processEngine
	e.Unlock()
	p.Lock()
	p.pollToken.clearOrdered()
	if p.parkedWaits > 0 {
		p.progressGoroutine.wake()
	}
	p.Unlock()
	e.Lock()
}

// progressRank is Progress of a rank's engine for which no wait polls.
func (e *Engine) progressRank() int {
	e.pollSessions++
	n := e.poll()
	e.runTasks(nil)
	p := e.processEngine
	e.Unlock()
	if p.TryLock() {
		n += p.Progress()
		p.Unlock()
	}
	e.Lock()
	return n
}

func (e *Engine) currentPollBudget() int {
	return pollBudgetOf(ranksOversubscribed() || e.processEngine.yieldsAtOnce())
}
