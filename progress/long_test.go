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
	if s.parked = s.e.parkedWaits > 0; !s.parked && s.polls < math.MaxUint16 {
		return 0
	}
	s.e.Complete(&s.wait)
	return 1
}

// TestWait_LongWait_ParksEarly although the engine polls and yields for an hour in other waits.
func TestWait_LongWait_ParksEarly(t *testing.T) {
	for name, x := range map[string]struct{ procs, streams int }{"alone": {1, 0}, "oversubscribed": {1 << 10, 0}, "oversubscribed by streams": {1, 1 << 10}} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, Options{Yield: time.Hour})
			b.e.SetNodeProcs(x.procs)
			b.e.SetStreams(x.streams)
			s := &awaitsSleeper{e: b.e}
			b.e.Add(s)
			defer b.e.Remove(s)
			b.e.Lock()
			defer b.e.Unlock()
			b.e.followPollers(b.e.pollerCount.Load())
			if err := b.e.Wait(LongWait(context.Background()), &s.wait, nil); err != nil {
				t.Fatal(err)
			}
			if !s.parked || s.polls > 2*pollsPerClock {
				t.Errorf("parked %t after %d polls", s.parked, s.polls)
			}
		})
	}
}
