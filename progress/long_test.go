package progress

import (
	"context"
	"math"
	"testing"
	"time"
)

// awaitsSleeper completes a wait once it is parked, or after many polls.
type awaitsSleeper struct {
	housekeeper
	e      *Engine
	polls  int
	parked bool
	wait   Completion
}

func (s *awaitsSleeper) Poll() int {
	if s.polls++; s.wait.Done() {
		return 0
	}
	if s.parked = s.e.parked > 0; !s.parked && s.polls < math.MaxUint16 {
		return 0
	}
	s.e.Complete(&s.wait)
	return 1
}

// TestWait_LongWait_ParksEarly although the engine polls and yields for an hour in other waits.
func TestWait_LongWait_ParksEarly(t *testing.T) {
	for name, procs := range map[string]int{"alone": 1, "oversubscribed": 1 << 10} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, Options{Yield: time.Hour})
			b.e.SetNodeProcs(procs)
			s := &awaitsSleeper{e: b.e}
			b.e.Add(s)
			defer b.e.Remove(s)
			b.e.Lock()
			defer b.e.Unlock()
			if err := b.e.Wait(LongWait(context.Background()), &s.wait, nil); err != nil {
				t.Fatal(err)
			}
			if !s.parked {
				t.Errorf("not parked after %d polls", s.polls)
			}
		})
	}
}
