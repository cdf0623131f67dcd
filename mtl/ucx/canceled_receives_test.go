package ucx

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
)

// TestPollCostsTheSameHoweverManyReceivesWereCanceled and have not ended.
func TestPollCostsTheSameHoweverManyReceivesWereCanceled(t *testing.T) {
	poll := func(n int) time.Duration {
		m := &module{}
		for range n {
			s, op := &slot{kind: receive, posted: true, canceled: true, since: time.Now()}, new(mtl.Op)
			s.op = op
			m.vain = append(m.vain, vain{s, op})
		}
		best := time.Hour
		for range 5 {
			begin := time.Now()
			for range n {
				m.came(0)
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
