package progress

import (
	"runtime"
	"testing"
	"time"
)

// A thread that blocks in a system call holds its P until sysmon takes it away, which
// delays everything else while a program starts. The progress goroutine needs one thread; the
// descriptors share Go's network poller.
func TestDescriptor_Waiting_NeedsNoThread(t *testing.T) {
	const n = 32
	asleep := func(descriptors bool) int {
		for range n {
			e := New(Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
			defer e.Close()
			if descriptors {
				p := newPipe(t, e)
				e.Add(p)
				defer e.Remove(p)
			}
			asleep(e)
		}
		return threads(t)
	}
	baseline := asleep(false)
	if all := asleep(true); all > baseline+n/2 {
		t.Errorf("%d engines that sleep have %d threads; with a descriptor each %d", n, baseline, all)
	}
}

// During the busy time the descriptor is not watched, so that packets cost their senders nothing extra.
func TestDescriptor_AfterBusyTime_WakesAgain(t *testing.T) {
	e := New(Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	defer e.Close()
	p := newPipe(t, e)
	e.Add(p)
	defer e.Remove(p)
	start := time.Now()
	const rounds = 20
	for range rounds {
		for busy := false; !busy; {
			e.bell.Ring() // the progress goroutine may sleep still
			e.Lock()
			e.Progress()
			busy = len(e.fdPoller.watchedFDs) == 0
			e.Unlock()
			runtime.Gosched()
		}
		wakes(t, e, p)
	}
	if took := time.Since(start); took > rounds*longestSleep/2 {
		t.Errorf("%v for %d rounds: the progress goroutine wakes by itself", took, rounds)
	}
}
