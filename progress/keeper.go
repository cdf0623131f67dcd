package progress

import (
	"runtime"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/doorbell"
)

// keeperTick is how long nobody may have polled before the keeper takes over.
// Shorter, and a program that alternates short computations with messages would
// have its peers pay a wake-up for each; longer, and a rendezvous would wait for
// a program that computes.
const keeperTick = 500 * time.Microsecond

// keeperLongest bounds a sleep. A ringer that dies between taking the flag and the
// system call leaves a sleeper whom nobody wakes any more.
const keeperLongest = time.Second

// keeper is the state of the goroutine that sleeps for all.
//
//	watching  waits for a tick or a kick; messages are somebody else's business
//	armed     sleeps on the bell; whoever brings something rings
//
// It goes from watching to armed when kicked (somebody parked), or when a tick
// passed in which nobody polled; and back when it was rung.
type keeper struct {
	kicks chan struct{} // capacity 1
	quit  chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	asleep doorbell.Bell // the bell on which it sleeps now, if any
	left   sync.Cond     // of mu; signalled when asleep is cleared
}

// kick has the keeper look, if it watches. If it is armed, it need not.
func (k *keeper) kick() {
	select {
	case k.kicks <- struct{}{}:
	default:
	}
}

// leave returns when the keeper does not use b any more.
func (k *keeper) leave(b doorbell.Bell) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.asleep == b {
		b.Ring()
		k.left.Wait()
	}
}

func (k *keeper) stop(e *Engine) {
	close(k.quit)
	e.bell.Ring()
	<-k.done
}

// stopping reports whether the engine is being closed. It is asked for after the
// bell was armed: stop closes quit first and rings then, so that one of the two
// is seen.
func (k *keeper) stopping() bool {
	select {
	case <-k.quit:
		return true
	default:
		return false
	}
}

func (e *Engine) keep() {
	e.label()
	k := &e.keeper
	defer close(k.done)
	tick := time.NewTimer(keeperTick)
	defer tick.Stop()
	var seen uint64 // e.polls at the last look
	for {
		select {
		case <-k.quit:
			return
		case <-k.kicks:
		case <-tick.C:
		}
		for e.sleep(&seen) {
			// Let those run whom that progress woke, before this thread sleeps
			// again with the processor in hand.
			runtime.Gosched()
			if k.stopping() {
				return
			}
		}
		tick.Reset(keeperTick)
	}
}

// sleep arms the bell and sleeps, if nobody polls, and progresses when rung.
// It returns whether the keeper should do so again at once.
func (e *Engine) sleep(seen *uint64) (again bool) {
	k := &e.keeper
	e.Lock()
	if e.polling || e.parked == 0 && e.polls != *seen {
		*seen = e.polls
		if e.fds != nil {
			e.fds.rest()
		}
		e.Unlock()
		return false
	}
	bell := e.bell.now
	if !bell.Armed() { // else it has been since the last sleep, in which nobody rang
		e.armed = time.Now()
	}
	ticket := bell.Arm()
	ready, timeout := e.arm(time.Since(e.armed))
	if e.poll() > 0 || !ready || k.stopping() {
		bell.Disarm()
		e.Unlock()
		return true
	}
	k.mu.Lock()
	k.asleep = bell
	k.mu.Unlock()
	e.Unlock()

	if timeout == 0 {
		timeout = keeperLongest
	}
	bell.Sleep(ticket, timeout)

	k.mu.Lock()
	k.asleep = doorbell.Bell{}
	k.mu.Unlock()
	k.left.Broadcast()

	e.Lock()
	defer e.Unlock()
	moved := 0
	if !e.polling {
		for n := e.poll(); n > 0; n = e.poll() {
			moved += n
			if e.waiters.Load() != 0 {
				break
			}
		}
	}
	busy := e.polling || e.polls != *seen
	*seen = e.polls
	// What has begun to move goes on: a large message to a program that computes
	// must not wait for a tick after each ring.
	return e.parked > 0 || moved > 0 && !busy
}

// arm asks all sources to prepare for sleep. ready is false if one of them has
// something; timeout is the shortest time of those that have to be polled.
// The bell has been armed for so long. Lock held.
func (e *Engine) arm(armed time.Duration) (ready bool, timeout time.Duration) {
	ready = true
	within := func(d time.Duration) {
		if d > 0 && (timeout == 0 || d < timeout) {
			timeout = d
		}
	}
	for _, s := range e.sources {
		if p, ok := framework.As[Polled](s); ok {
			within(p.Interval())
		}
		if t, ok := framework.As[Timed](s); ok {
			within(t.Due())
		}
		if l, ok := framework.As[Lagging](s); ok {
			within(l.Lag() - armed)
		}
		if d, ok := framework.As[Descriptor](s); ok {
			if !d.Arm() {
				ready = false
			} else if !e.fds.arm(d) {
				timeout = keeperTick
			}
		}
	}
	return ready, timeout
}
