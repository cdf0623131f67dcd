package base

import (
	"testing"
	"time"
)

// A machine that polls late must not make a second of it, nor must a process that was stopped
// find the bootstrap's time used up.
func TestDoubtLastsAsLongAsItSays(t *testing.T) {
	last := time.Now()
	for passed, want := range map[time.Duration]int{
		0: 0, DoubtStep - 1: 0, DoubtStep: 1, 24 * time.Millisecond: 2, 10 * time.Second: doubtAtOnce,
	} {
		if got := DoubtTaken(last, last.Add(passed)); got != want {
			t.Errorf("after %v: %d steps, want %d", passed, got, want)
		}
	}
	if doubtAtOnce > DoubtSteps/10 {
		t.Errorf("a stop takes %d of %d steps", doubtAtOnce, DoubtSteps)
	}
}
