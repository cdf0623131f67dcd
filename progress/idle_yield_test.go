package progress

import (
	"testing"
	"time"
)

// laterSource completes a completion at the poll of number at.
type laterSource struct {
	e         *Engine
	c         *Completion
	polls, at int
}

func (s *laterSource) Poll() int {
	if s.polls++; s.polls != s.at {
		return 0
	}
	s.e.Complete(s.c)
	return 1
}

// Where the other ranks of a processor sleep, each yield costs as much
// as ten polls and helps none of them.
func TestWait_Oversubscribed_YieldsUnlessTheProcessorIsIdle(t *testing.T) {
	e := New(Options{Yield: time.Hour, NodeProcs: 3, Processors: 2})
	defer e.Close()
	e.Lock()
	defer e.Unlock()
	for _, idle := range []bool{false, true, false} {
		elapsed, n := 2*yieldWithoutSwitch, 1
		if idle {
			elapsed, n = yieldWithoutSwitch/2, timedIdleYields
		}
		for range n {
			e.countYield(elapsed)
		}
		e.yieldCount = 0
		var c Completion
		if err := e.Wait(t.Context(), &c, &laterSource{e: e, c: &c, at: pollsBeforeIdleYield}); err != nil {
			t.Fatal(err)
		}
		if yielded := e.yieldCount > 0; yielded == idle {
			t.Errorf("idle processor %t: %d yields in %d polls", idle, e.yieldCount, pollsBeforeIdleYield)
		}
	}
}

func TestCountYield_OneSwitch_EndsTheIdleState(t *testing.T) {
	e := &Engine{}
	for range 2 * timedIdleYields {
		e.countYield(0)
	}
	if polls, _ := e.pollsBeforeYielding(); polls != pollsBeforeIdleYield {
		t.Errorf("%d polls before a yield after yields without a switch, want %d", polls, pollsBeforeIdleYield)
	}
	e.countYield(time.Millisecond)
	for range timedIdleYields - 1 {
		e.countYield(0)
	}
	if polls, _ := e.pollsBeforeYielding(); polls != pollsBeforeYield {
		t.Errorf("%d polls before a yield after a switch, want %d", polls, pollsBeforeYield)
	}
}
