package trial

import (
	"testing"
	"time"
)

// TestStoppedProcessKeepsItsDeadline: time in which it did not run counts as one
// step.
func TestStoppedProcessKeepsItsDeadline(t *testing.T) {
	p := NewPatience(time.Hour)
	p.last = p.last.Add(-24 * time.Hour)
	if p.Over() {
		t.Error("a process that was stopped for a day has no time left")
	}
	for i := 0; !p.Over(); i++ {
		if i == 20 {
			t.Fatalf("after twenty steps %v is left", p.left)
		}
		p.last = p.last.Add(-24 * time.Hour)
	}
}
