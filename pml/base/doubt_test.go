package base

import (
	"testing"
	"time"
)

// Late polls and a stopped process must not consume the time that the bootstrap has for its
// report.
func TestDoubtStepsElapsed_LatePolls_IsBounded(t *testing.T) {
	last := time.Now()
	for passed, want := range map[time.Duration]int{
		0: 0, DoubtStep - 1: 0, DoubtStep: 1, 24 * time.Millisecond: 2, 10 * time.Second: maxStepsAtOnce,
	} {
		if got := DoubtStepsElapsed(last, last.Add(passed)); got != want {
			t.Errorf("after %v: %d steps, want %d", passed, got, want)
		}
	}
	if maxStepsAtOnce > DoubtSteps/10 {
		t.Errorf("a stop takes %d of %d steps", maxStepsAtOnce, DoubtSteps)
	}
}
