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

// lock is the engine's lock. It is held for well under a microsecond, except by the polling wait, which checks waiters after every poll. Its holder never
// blocks. Goroutines therefore do not sleep for it, and a release is a plain store. That has half the cost of a sync.Mutex, and does not wait for
// earlier stores.
type lock struct {
	state uint32 // 1 while held.
	// Goroutines in lockSlow, and those that Go starts.
	waiterCount atomic.Int32
	stoppedErr  atomic.Pointer[StoppedError]
}

// Lock acquires the lock, which takes one atomic operation without contention. It panics
// with a *StoppedError if a panic under the lock has stopped the engine.
func (l *lock) Lock() {
	if !atomic.CompareAndSwapUint32(&l.state, 0, 1) {
		l.lockSlow()
	}
}

// TryLock acquires the lock if it is free, and reports whether it did.
func (l *lock) TryLock() bool {
	return atomic.LoadUint32(&l.state) == 0 && atomic.CompareAndSwapUint32(&l.state, 0, 1)
}

// Unlock releases the lock.
func (l *lock) Unlock() { cpu.Store32(&l.state, 0) }

// Stages of lockSlow. A running holder releases the lock within lockSpins pauses. A holder without a processor needs one, so that waiters yield, and
// then sleep. Otherwise a thousand waiters would use all processors.
const (
	lockSpins  = 64
	lockYields = 64
	lockSleep  = 20 * time.Microsecond
)

// lockSlow is not inlined, so that Lock can be, which saves 10 instructions for each.
//
//go:noinline
func (l *lock) lockSlow() {
	if !l.lockUntil(func() bool { return l.stoppedErr.Load() != nil }) {
		l.raise()
	}
}

// lockUntil acquires the lock and returns true, or returns false after isAbandoned has returned true. It calls isAbandoned at intervals.
func (l *lock) lockUntil(isAbandoned func() bool) bool {
	l.waiterCount.Add(1)
	defer l.waiterCount.Add(-1)
	for i := 0; ; i++ {
		if atomic.LoadUint32(&l.state) == 0 && atomic.CompareAndSwapUint32(&l.state, 0, 1) {
			return true
		}
		switch {
		case i < lockSpins:
			cpu.Pause()
		case i < lockSpins+lockYields:
			runtime.Gosched()
		case isAbandoned():
			return false
		default:
			time.Sleep(lockSleep)
			l.search(i + 1 - lockSpins - lockYields)
		}
	}
}

// Go runs f in a goroutine. A polling wait lets it start soon. With GOMAXPROCS=1 it would otherwise not run before that wait parks.
func (l *lock) Go(f func()) {
	l.waiterCount.Add(1)
	go func() {
		l.waiterCount.Add(-1)
		f()
	}()
}

// ObserveLimit is the time limit of Observe.
const ObserveLimit = 80 * time.Millisecond

// Observe calls f, which only reads state, with the lock held. A transport may block in a
// call while it holds the lock, and on an overloaded machine the holder may not run.
// Therefore Observe returns an error that wraps framework.ErrTimeout after ObserveLimit, or
// when ctx ends.
func (l *lock) Observe(ctx context.Context, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, ObserveLimit)
	defer cancel()
	if !l.lockUntil(func() bool { return ctx.Err() != nil || l.stoppedErr.Load() != nil }) {
		if stopped := l.stoppedErr.Load(); stopped != nil {
			return stopped
		}
		return fmt.Errorf("%w: progress engine: not free within %v: a transport blocks in a call, or the machine is overloaded; SIGQUIT prints the goroutines",
			framework.ErrTimeout, ObserveLimit)
	}
	defer l.Unlock()
	f()
	return nil
}
