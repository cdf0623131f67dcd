package progress

import (
	"context"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// Waiting actively: poll, pause, offer the processor, and at last give up and sleep.

// How often the poller looks at other things than its sources, in polls.
const (
	pollsPerClock = 64 // reading the clock costs as much as a few polls
	pollsPerOther = 8  // of the other sources, when one comes first
	// pollsBeforeOffer are worth it even if the processor is wanted: a peer that runs
	// on another one may answer meanwhile. With 8, each of all sources, 8 ranks on 2
	// processors took 8.6 us for a barrier; with 2, the second of all sources, 6.2.
	pollsBeforeOffer = 2
	// offersPerClock is pollsPerClock when the processor is offered after each poll.
	offersPerClock = 8
)

// active polls until *done, or the time to be active is over (then nil), or ctx
// ends. Lock held; nobody else polls.
func (e *Engine) active(ctx context.Context, done *bool, first Source) (err error) {
	e.polling = true
	e.polls++
	var cancel <-chan struct{}
	var yieldAt time.Time
	// Where ranks outnumber processors the one that is waited for may wait for this
	// one's processor: every poll delays it.
	offering, perClock := e.crowded, pollsPerClock
	clock := perClock // polls until the next look at it
	perOther, turn := pollsPerOther, 0
	if offering {
		perClock = offersPerClock
		clock, turn = pollsBeforeOffer+perClock, pollsBeforeOffer
	}
	moved := 0  // what has happened since the last look at the clock
	others := 0 // what has at the last poll of all sources: more may come at once
	for i := 1; ; i++ {
		n := 0
		if first != nil {
			n = first.Poll()
		}
		if !*done && (first == nil || i%perOther == turn%perOther || others > 0) {
			others = e.poll()
			n += others
		}
		if *done {
			break
		}
		if e.Wanted() {
			e.letIn()
			if *done {
				break
			}
		}
		if n == 0 && !offering {
			cpu.Pause()
		} else if n == 0 && i > pollsBeforeOffer {
			e.offer()
			if *done {
				break
			}
		}
		moved += n
		if clock--; clock > 0 {
			continue
		}
		clock = perClock
		now := time.Now()
		if yieldAt.IsZero() {
			yieldAt = now.Add(e.spin)
			if ctx != nil {
				cancel = ctx.Done()
			}
		}
		if moved > 0 { // busy: the time until it sleeps starts again
			yieldAt, moved = now.Add(e.spin), 0
		}
		select {
		case <-cancel:
			err = context.Cause(ctx)
		default:
		}
		if err != nil {
			break
		}
		if now.After(yieldAt) {
			if now.Sub(yieldAt) > e.yield && now.Sub(yieldAt) > e.patience() {
				break
			}
			offering, perClock, perOther = true, offersPerClock, 1
		}
	}
	e.polling = false
	if e.parked > 0 {
		e.keeper.kick()
	}
	return err
}

// polledYield is Yield where a source can't be awaited. A large message of which
// nothing is heard until it is complete is over by then; polled at intervals only, it
// takes three times as long (64 MiB over tcp;ofi_rxm: 38 ms).
const polledYield = 20 * time.Millisecond

// patience returns how long others get turns before it is worth to sleep. Lock held.
func (e *Engine) patience() time.Duration {
	for _, s := range e.sources {
		if p, ok := framework.As[Polled](s); ok && p.Interval() > 0 && !awaited(s) {
			return max(e.yield, polledYield)
		}
	}
	return e.yield
}

// awaited reports whether something tells when there is something to poll.
func awaited(s Source) bool {
	_, reads := framework.As[Descriptor](s)
	return reads
}

// letIn lets goroutines take the lock that wait for it, without giving up the
// poll token.
func (e *Engine) letIn() {
	e.Unlock()
	for i := 0; e.waiters.Load() != 0 && i < 1000; i++ {
		if i%16 == 15 {
			runtime.Gosched()
		} else {
			cpu.Pause()
		}
	}
	e.Lock()
}

// offersPerGosched is how often the other processes get the processor before the
// other goroutines of this one do, which have processors of their own as a rule:
// Gosched wakes a thread to look for work, and that costs as much as three turns of
// a neighbour (8 ranks on 2 processors: 65 us for a barrier instead of 25).
const offersPerGosched = 1024

// offer gives the processor to other processes, and now and then to goroutines of
// this one.
func (e *Engine) offer() {
	e.offers++
	goroutines := e.offers%offersPerGosched == 0 || e.alone
	if e.offers%offersPerGosched == 0 { // it may have changed
		e.alone = sharesP()
	}
	e.Unlock()
	if goroutines {
		runtime.Gosched()
	}
	cpu.Yield()
	e.Lock()
}
