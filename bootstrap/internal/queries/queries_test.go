package queries

import (
	"testing"
	"time"
)

// ticks returns the number of ticks until the peer is late.
func ticks(r *Record) (n int) {
	for n = 1; !r.Tick(); n++ {
	}
	return n
}

func TestRecord_NoAnswer_IsLateAfterTheTimeout(t *testing.T) {
	var r Record
	if n := ticks(&r); n != most+1 { // The first tick sends the first query.
		t.Errorf("late at tick %d, want %d", n, most+1)
	}
}

func TestRecord_AnyMessage_StartsTheCountAgain(t *testing.T) {
	var r Record
	for range 10 {
		for range most {
			if r.Tick() {
				t.Fatal("late")
			}
		}
		r.Received()
	}
	if n := ticks(&r); n != most+1 {
		t.Errorf("late at tick %d after a message, want %d", n, most+1)
	}
}

func TestPeriod_TinyTimeout_HasALimit(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{1: minPeriod, 5 * time.Second: time.Second} {
		if got := Period(timeout); got != want {
			t.Errorf("%v: %v, want %v", timeout, got, want)
		}
	}
}
