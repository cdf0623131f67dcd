package progress

import (
	"testing"
	"time"
)

// stutter has something in every second poll only, and completes what is waited for
// when time is over. asleep counts polls for somebody who sleeps.
type stutter struct {
	e      *Engine
	over   time.Time
	polls  int
	asleep int
	wait   *Completion
}

func (s *stutter) Poll() int {
	if s.polls++; s.e.parked > 0 {
		s.asleep++
	}
	if time.Now().After(s.over) && !s.wait.Done() {
		s.e.Complete(s.wait)
	}
	return s.polls % 2
}

// TestWaitThatMovesDoesNotSleep: the clock is looked at after an even number of
// polls. What had moved in those before was forgotten, and large messages, of which
// few polls say anything, were waited for asleep.
func TestWaitThatMovesDoesNotSleep(t *testing.T) {
	e := New(Options{Spin: time.Microsecond * 50, Yield: time.Microsecond * 50})
	s := &stutter{e: e, over: time.Now().Add(50 * time.Millisecond), wait: new(Completion)}
	e.Add(s)
	defer e.Close()
	defer e.Remove(s)
	e.Lock()
	defer e.Unlock()
	if err := e.Wait(nil, s.wait, nil); err != nil {
		t.Fatal(err)
	}
	if s.asleep > 0 {
		t.Errorf("%d of %d polls were made for a sleeper", s.asleep, s.polls)
	}
}
