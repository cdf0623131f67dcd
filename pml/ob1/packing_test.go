package ob1

import (
	"testing"
	"time"
)

// TestSlowFirstPartIsSoonForgotten: the first part of all meets memory that no core knows yet. When the average began with that, an RTS
// said ten times the truth for a hundred messages, and ways by frames were given up for ways that take three times as long.
func TestSlowFirstPartIsSoonForgotten(t *testing.T) {
	const cold, warm = 22 * time.Microsecond, 2 * time.Microsecond
	var k packing
	for n := range 3 {
		if !k.timed() {
			t.Fatalf("part %d was not timed", n)
		}
		took := warm
		if n == 0 {
			took = cold
		}
		k.add(took)
	}
	if k.took != warm {
		t.Errorf("after a slow part and two others: %v, not %v", k.took, warm)
	}
}

// TestPartsAreFollowedOnceTwoSayTheSame in both directions, and one that was interrupted is not.
func TestPartsAreFollowedOnceTwoSayTheSame(t *testing.T) {
	var k packing
	said := func(took time.Duration, timed int) time.Duration {
		for timed > 0 {
			if k.timed() {
				k.add(took)
				timed--
			}
		}
		return k.took
	}
	if took := said(time.Microsecond, 3); took != time.Microsecond {
		t.Fatalf("at first %v", took)
	}
	if took := said(time.Millisecond, 1); took != time.Microsecond {
		t.Errorf("one that was interrupted is believed: %v", took)
	}
	for _, now := range []time.Duration{5 * time.Microsecond, 2 * time.Microsecond, time.Microsecond} {
		if took := said(now, 2); took != now {
			t.Errorf("two of %v, and what is said is %v", now, took)
		}
	}
}

func TestFewPartsAreTimed(t *testing.T) {
	var k packing
	n := 0
	for range 10 * timedOf {
		if k.timed() {
			k.add(1)
			n++
		}
	}
	if n != 13 {
		t.Errorf("%d of %d parts were timed", n, 10*timedOf)
	}
}
