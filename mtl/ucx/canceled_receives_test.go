package ucx

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// The canceled receives have not ended.
func TestPoll_ManyCanceledReceives_TakesConstantTime(t *testing.T) {
	poll := func(n int) time.Duration {
		m := &module{}
		for range n {
			s, op := &slot{Slot: base.Slot{Kind: base.SlotReceive, IsPosted: true, IsCanceled: true}, canceledAt: time.Now()}, new(mtl.Op)
			s.Op = op
			m.canceledReceives.receives = append(m.canceledReceives.receives, canceledReceive{s, op})
		}
		best := time.Hour
		for range 5 {
			begin := time.Now()
			for range n {
				m.handleEvents(0)
			}
			best = min(best, time.Since(begin)/time.Duration(n))
		}
		return best
	}
	few, many := poll(100), poll(10_000)
	if t.Log(few, many); many > 20*few {
		t.Errorf("a poll takes %v with 10000 of them, and %v with 100", many, few)
	}
}
