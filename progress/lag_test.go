package progress

import (
	"testing"
	"time"
)

// laggard is a source with a peer that has read the bell before it was armed. Its store becomes visible after the last poll before sleep.
type laggard struct {
	e     *Engine
	wait  Completion
	polls int // since the bell is armed
	moved bool
}

func (s *laggard) Poll() int {
	if s.moved || !s.e.Bell().Armed() {
		return 0
	}
	if s.polls++; s.polls < 2 {
		return 0
	}
	s.moved = true
	s.e.Complete(&s.wait)
	return 1
}

func (s *laggard) Lag() time.Duration { return time.Millisecond }

// No bell is rung for the store.
func TestLagging_LastPollMissesStore_IsPolledAgain(t *testing.T) {
	e := New(Options{Spin: time.Microsecond, Yield: time.Microsecond})
	defer e.Close()
	s := &laggard{e: e}
	e.Add(s)
	defer e.Remove(s)
	e.Lock()
	err := e.Wait(t.Context(), &s.wait, nil)
	e.Unlock()
	if err != nil || s.polls < 2 {
		t.Errorf("%v after %d looks", err, s.polls)
	}
	e.Lock()
	timeout := func(armed time.Duration) time.Duration { _, d := e.arm(armed); return d }
	first, woken, again := timeout(0), timeout(time.Millisecond/4), timeout(time.Millisecond)
	e.Unlock()
	if first != time.Millisecond || woken != 3*time.Millisecond/4 || again != 0 {
		t.Errorf("it sleeps for %v at first, for %v if something wakes it, and then for %v", first, woken, again)
	}
}
