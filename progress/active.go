package progress

import (
	"context"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// An active wait polls, pauses, yields the processor, and finally parks.

// Intervals of an active wait, in polls.
const (
	pollsPerClock = 64 // Reading the clock costs as much as a few polls.
	pollsPerOther = 8  // Polls of the first source per poll of all sources.
	// pollsBeforeYield is the number of polls before the first yield while ranks are oversubscribed. A peer on another processor may reply
	// during them. With 8 polls of all sources, a barrier of 8 ranks on 2 processors took 8.6 us. With 2, of which the second is of all
	// sources, it took 6.2.
	pollsBeforeYield = 2
	// pollsBeforeIdleYield replaces pollsBeforeYield while yields return at once, since the other ranks of this processor sleep.
	// A yield then costs as much as ten polls (0.4 us).
	pollsBeforeIdleYield = 64
	// timedIdleYields is the number of consecutive timed yields without a switch after which the processor counts as idle.
	timedIdleYields = 8
	// yieldsPerTiming is the number of yields per timed one. Reading the clock costs a tenth of a yield.
	yieldsPerTiming = 8
	// yieldsPerClock replaces pollsPerClock while each poll is followed by a yield.
	yieldsPerClock = 8
)

// active polls until *done, until ctx ends (its cause is returned), or until it is time
// to park (nil). Lock held, released meanwhile. The poll token must be free.
func (e *Engine) active(ctx context.Context, done *bool, first Source) (err error) {
	if e.rankPart != nil {
		return e.activeRank(ctx, done, first)
	}
	e.pollToken.set()
	e.pollSessions++
	var timer waitTimer
	// While ranks are oversubscribed the peer may need this processor, and each poll delays it.
	yielding, perClock := e.isOversubscribed, pollsPerClock
	clock := perClock // Polls until the clock is read.
	perOther, phase := pollsPerOther, 0
	beforeYield := pollsBeforeYield
	if yielding {
		perClock = yieldsPerClock
		beforeYield, phase = e.pollsBeforeYielding()
		clock = beforeYield + perClock
	}
	isExtended := !yielding // The number of polls before the first yield is final.
	moved := 0              // Events since the clock was read.
	others := 0             // Events of the last poll of all sources. More may follow at once.
	for i := 1; ; i++ {
		n := 0
		if first != nil {
			n = first.Poll()
		}
		if !*done && (first == nil || i%perOther == phase%perOther || others > 0) {
			others = e.poll()
			n += others
		}
		if *done {
			break
		}
		if e.Wanted() {
			e.admitLockWaiters()
			if *done {
				break
			}
		}
		if n == 0 && !yielding {
			cpu.Pause()
		} else if n == 0 && i > beforeYield {
			if !isExtended {
				if isLong(ctx) {
					break
				}
				isExtended = true
				more := e.extendSpin()
				beforeYield, clock = i-1+more, clock+more
			}
			if i > beforeYield {
				e.yieldProcessor()
				if *done {
					break
				}
			}
		} else if n == 0 && isExtended {
			cpu.Pause()
		}
		moved += n
		if clock--; clock > 0 {
			continue
		}
		clock = perClock
		var state waitState
		if state, err = timer.read(e, ctx, moved); state == waitEnds {
			break
		}
		moved = 0
		if state == waitYields {
			yielding, perClock, perOther = true, yieldsPerClock, 1
		}
	}
	e.stopPolling()
	return err
}

// waitState is the state of an active wait after a reading of the clock.
type waitState int

const (
	waitContinues waitState = iota // As before.
	waitYields                     // It yields after each poll from now on.
	waitEnds                       // It parks, or its context has ended.
)

// waitTimer decides for an active wait when it yields and when it parks.
type waitTimer struct {
	// Zero before the first reading of the clock.
	yieldAt time.Time
	// Of the wait's context.
	ctxDone <-chan struct{}
}

// read reads the clock after polls with a number of events. err is the cause of an ended context. Lock held.
func (t *waitTimer) read(e *Engine, ctx context.Context, events int) (waitState, error) {
	now := time.Now()
	isFirst := t.yieldAt.IsZero()
	if isFirst {
		if n := e.pollerCount.Load(); n != e.followedPollers {
			e.followPollers(n)
		}
		if ctx != nil {
			t.ctxDone = ctx.Done()
		}
		if isLong(ctx) {
			return waitEnds, nil
		}
	}
	if isFirst || events > 0 { // Events restart the time until the wait parks.
		t.yieldAt = now.Add(e.spinTime)
	}
	select {
	case <-t.ctxDone:
		return waitEnds, context.Cause(ctx)
	default:
	}
	late := now.Sub(t.yieldAt)
	switch {
	case late <= 0:
		return waitContinues, nil
	case late > e.yieldTime && late > e.patience():
		return waitEnds, nil
	default:
		return waitYields, nil
	}
}

// stopPolling returns the poll token of a process's engine. Lock held.
func (e *Engine) stopPolling() {
	if openRanks.Load() == 0 {
		e.pollToken.clear()
	} else {
		e.pollToken.clearOrdered() // A rank parks without this lock, see park.
	}
	if e.hasParked() {
		e.progressGoroutine.wake()
	}
}

// hasParked reports whether waits of the process or of its ranks are parked. Lock held.
func (e *Engine) hasParked() bool { return e.parkedWaits > 0 || e.parkedRanks.Load() > 0 }

// polledYield replaces Options.Yield if a source can only be polled. Such a source reports a large message only when it is complete. Polled at
// intervals, the message takes three times as long (64 MiB over tcp;ofi_rxm: 38 ms).
const polledYield = 20 * time.Millisecond

// patience returns how long a wait yields before it parks. Lock held.
func (e *Engine) patience() time.Duration {
	for _, s := range e.sources {
		if p, ok := framework.As[Polled](s); ok && p.Interval() > 0 && !awaited(s) {
			return max(e.yieldTime, polledYield)
		}
	}
	return e.yieldTime
}

// awaited reports whether a descriptor announces events of the source.
func awaited(s Source) bool {
	_, reads := framework.As[Descriptor](s)
	return reads
}

// admitLockWaiters lets goroutines that wait for the lock acquire it. The caller keeps
// the poll token.
func (e *Engine) admitLockWaiters() {
	e.Unlock()
	for i := 0; e.waiterCount.Load() != 0 && i < 1000; i++ {
		if i%16 == 15 {
			runtime.Gosched()
		} else {
			cpu.Pause()
		}
	}
	e.Lock()
}

// yieldsPerGosched is the number of yields to other processes per yield to goroutines of this process, which usually run on other processors. Gosched
// wakes a thread that searches for work, which costs as much as three slices of another rank (65 us instead of 25 for a barrier of 8 ranks on 2
// processors).
const yieldsPerGosched = 1024

// yieldWithoutSwitch exceeds the time of a yield after which the same thread continues (0.4 us). A switch to another thread
// and back takes 2 us and more.
const yieldWithoutSwitch = time.Microsecond

// yieldProcessor yields to other processes, and at intervals to goroutines of this one.
// Lock held, released meanwhile.
func (e *Engine) yieldProcessor() {
	e.yieldCount++
	goroutines := e.yieldCount%yieldsPerGosched == 0 || e.usesGosched
	if e.yieldCount%yieldsPerGosched == 0 { // GOMAXPROCS may have changed.
		e.usesGosched = sharesP()
	}
	isTimed := e.idleYields == timedIdleYields || e.yieldCount%yieldsPerTiming == 0
	e.Unlock()
	if goroutines {
		runtime.Gosched()
	}
	if !isTimed {
		cpu.Yield()
		e.Lock()
		return
	}
	start := time.Now()
	cpu.Yield()
	elapsed := time.Since(start)
	e.Lock()
	e.countYield(elapsed)
}

// countYield counts a timed yield for the decision whether the processor is idle but for this wait. Lock held.
func (h *yieldHistory) countYield(elapsed time.Duration) {
	if elapsed > yieldWithoutSwitch {
		h.idleYields = 0
	} else if h.idleYields < timedIdleYields {
		h.idleYields++
	}
}

// pollsBeforeYielding returns the number of polls before the first yield of a wait where ranks are oversubscribed, and the phase of
// its polls of all sources. Lock held.
func (h *yieldHistory) pollsBeforeYielding() (polls, phase int) {
	if h.idleYields == timedIdleYields {
		return pollsBeforeIdleYield, 0
	}
	return pollsBeforeYield, pollsBeforeYield
}
