package progress

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/internal/cpu"
)

// lock is the engine's lock. It is held for well under a microsecond, except by
// the poller, who looks at waiters at every turn; nobody blocks while he holds
// it. So nobody sleeps for it either, and releasing it is a plain store: half of
// what a sync.Mutex costs, and no wait for earlier stores, twice per message.
type lock struct {
	state   uint32       // 1: held
	waiters atomic.Int32 // goroutines in lockSlow
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

func (l *lock) lockSlow() {
	l.waiters.Add(1)
	for i := 0; ; i++ {
		if atomic.LoadUint32(&l.state) == 0 && atomic.CompareAndSwapUint32(&l.state, 0, 1) {
			break
		}
		switch {
		case i < lockSpins:
			cpu.Pause()
		case i < lockSpins+lockYields:
			runtime.Gosched()
		default:
			time.Sleep(lockSleep)
		}
	}
	l.waiters.Add(-1)
}
