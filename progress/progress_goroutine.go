package progress

import (
	"runtime"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/doorbell"
)

// progressTick is the time without polls after which the progress goroutine takes over.
// With a shorter one, the peers of a program that alternates short computations with
// messages would pay a wake-up for each message. With a longer one, a rendezvous would
// wait for a program that computes.
const progressTick = 500 * time.Microsecond

// longestSleep bounds a sleep. A process that dies between clearing the armed flag and
// its system call leaves a sleeper that no later ring wakes.
const longestSleep = time.Second

// progressGoroutine is the waiter of last resort, which sleeps for all parked waits.
//
//	watching  waits for a tick or a wake-up; another goroutine polls
//	armed     sleeps on the bell, which peers ring
//
// A wake-up (a wait has parked) or a tick without polls moves it from watching to
// armed, and a ring moves it back.
type progressGoroutine struct {
	wakeups chan struct{} // Has capacity 1.
	quit    chan struct{}
	done    chan struct{}

	mu sync.Mutex
	// Bell that it sleeps on. The zero Bell while it is awake.
	sleepBell doorbell.Bell
	// With mu; signaled when sleepBell is cleared.
	wokenCond sync.Cond
}

// wake makes the progress goroutine check whether it has to sleep for a parked wait.
// While it is armed that has no effect.
func (g *progressGoroutine) wake() {
	select {
	case g.wakeups <- struct{}{}:
	default:
	}
}

// leaveBell returns when the progress goroutine no longer uses b.
func (g *progressGoroutine) leaveBell(b doorbell.Bell) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.sleepBell == b {
		b.Ring()
		g.wokenCond.Wait()
	}
}

func (g *progressGoroutine) stop(e *Engine) {
	close(g.quit)
	e.bell.Ring()
	<-g.done
}

// stopping reports whether the engine is being closed. Check it after arming the bell:
// stop closes quit and then rings, so that one of the two takes effect.
func (g *progressGoroutine) stopping() bool {
	select {
	case <-g.quit:
		return true
	default:
		return false
	}
}

func (e *Engine) runProgressGoroutine() {
	e.label()
	g := &e.progressGoroutine
	defer close(g.done)
	tick := time.NewTimer(progressTick)
	defer tick.Stop()
	var seen uint64 // Value of e.pollSessions at the last check.
	for {
		select {
		case <-g.quit:
			return
		case <-g.wakeups:
		case <-tick.C:
		}
		if openRanks.Load() > 0 {
			updateProcessors()
		}
		for e.sleep(&seen) {
			// Goroutines that this progress woke run before this thread blocks and
			// keeps its processor.
			runtime.Gosched()
			if g.stopping() {
				return
			}
		}
		tick.Reset(progressTick)
	}
}

// sleep arms the bell and sleeps, unless another goroutine polls, and progresses when
// it is rung. It returns whether to sleep again at once.
func (e *Engine) sleep(seen *uint64) (again bool) {
	g := &e.progressGoroutine
	e.Lock()
	if e.pollToken.isSet() || !e.hasParked() && e.pollSessions != *seen {
		*seen = e.pollSessions
		if e.fdPoller != nil {
			e.fdPoller.rest()
		}
		e.Unlock()
		return false
	}
	bell := e.bell.currentBell
	if !bell.Armed() { // Otherwise the last sleep ended without a ring.
		e.armedAt = time.Now()
	}
	ticket := bell.Arm()
	ready, timeout := e.arm(time.Since(e.armedAt))
	if e.poll() > 0 || !ready || g.stopping() {
		bell.Disarm()
		e.Unlock()
		return true
	}
	g.mu.Lock()
	g.sleepBell = bell
	g.mu.Unlock()
	e.Unlock()

	if timeout == 0 {
		timeout = longestSleep
	}
	bell.Sleep(ticket, timeout)

	g.mu.Lock()
	g.sleepBell = doorbell.Bell{}
	g.mu.Unlock()
	g.wokenCond.Broadcast()

	e.Lock()
	defer e.Unlock()
	moved := 0
	if !e.pollToken.isSet() {
		for n := e.poll(); n > 0; n = e.poll() {
			moved += n
			if e.waiterCount.Load() != 0 {
				break
			}
		}
	}
	busy := e.pollToken.isSet() || e.pollSessions != *seen
	*seen = e.pollSessions
	// A large message to a program that computes does not wait for a tick after each
	// ring.
	return e.hasParked() || moved > 0 && !busy
}

// arm prepares all sources for sleep. ready is false if one of them has events; timeout
// is the shortest time after which a source must be polled. armed is the time since the
// bell was armed. Lock held.
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
			} else if !e.fdPoller.arm(d) {
				timeout = progressTick
			}
		}
	}
	return ready, timeout
}
