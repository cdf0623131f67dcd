package progress

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// lock is the engine's lock. It is held for well under a microsecond, except by
// the poller, who looks at waiters at every turn; nobody blocks while he holds
// it. So nobody sleeps for it either, and releasing it is a plain store: half of
// what a sync.Mutex costs, and no wait for earlier stores, twice per message.
type lock struct {
	state   uint32       // 1: held
	waiters atomic.Int32 // goroutines in lockSlow, and those that Go has begin
}

// Lock takes the engine's lock. Cost without contention: one atomic operation.
func (l *lock) Lock() {
	if !atomic.CompareAndSwapUint32(&l.state, 0, 1) {
		l.lockSlow()
	}
}

// Unlock releases the lock.
func (l *lock) Unlock() { cpu.Store32(&l.state, 0) }

// How lockSlow waits: while the holder runs, he is done in less than lockSpins
// pauses. If the system or the scheduler took the processor from him, others go
// on, and then all sleep, so that a thousand waiters don't burn it.
const (
	lockSpins  = 64
	lockYields = 64
	lockSleep  = 20 * time.Microsecond
)

// lockSlow is not inlined, so that Lock is: 10 instructions for each.
//
//go:noinline
func (l *lock) lockSlow() { l.lockUntil(func() bool { return false }) }

// lockUntil takes the lock, and reports true, unless enough says before that it is not
// worth to wait for longer. It is asked now and then.
func (l *lock) lockUntil(enough func() bool) bool {
	l.waiters.Add(1)
	defer l.waiters.Add(-1)
	for i := 0; ; i++ {
		if atomic.LoadUint32(&l.state) == 0 && atomic.CompareAndSwapUint32(&l.state, 0, 1) {
			return true
		}
		switch {
		case i < lockSpins:
			cpu.Pause()
		case i < lockSpins+lockYields:
			runtime.Gosched()
		case enough():
			return false
		default:
			time.Sleep(lockSleep)
		}
	}
}

// Go runs f in a goroutine. Who polls lets it begin soon: where there is one processor
// for goroutines, it would not run before the poller sleeps.
func (l *lock) Go(f func()) {
	l.waiters.Add(1)
	go func() {
		l.waiters.Add(-1)
		f()
	}()
}

// ObserveLimit is how long Observe waits.
const ObserveLimit = 80 * time.Millisecond

// Observe calls f with the lock held, for somebody who only wants to know something. A
// transport may hang in a call, with the lock in hand, and who looks for the reason must
// not hang with it: after ObserveLimit, or when ctx ends, Observe gives up, and the error
// wraps framework.ErrTimeout.
func (l *lock) Observe(ctx context.Context, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, ObserveLimit)
	defer cancel()
	if !l.lockUntil(func() bool { return ctx.Err() != nil }) {
		return fmt.Errorf("%w: the progress engine did not become free within %v: a transport hangs in one of its calls, as the goroutines show (SIGQUIT)",
			framework.ErrTimeout, ObserveLimit)
	}
	defer l.Unlock()
	f()
	return nil
}
