package ob1

import (
	"testing"
	"time"
)

const cold, warm = 22 * time.Microsecond, 2 * time.Microsecond

// parts are the parts that one process gets.
type parts struct {
	packing
	count uint64
	timed int
}

// take has parts that take so long packed, and returns what the RTS of the last one says.
func (p *parts) take(all ...time.Duration) time.Duration {
	for _, took := range all {
		p.count++
		if p.packing.timed(p.count) {
			p.add(p.count, took)
			p.timed++
		}
	}
	return p.took
}

func (p *parts) takeMany(n int, took time.Duration) time.Duration {
	for range n {
		p.take(took)
	}
	return p.took
}

// TestSlowFirstPartIsSoonForgotten: the first part of all meets memory that no core knows yet. When the average began with that, an RTS
// said ten times the truth for a hundred messages, and ways by frames were given up for ways that take three times as long.
func TestSlowFirstPartIsSoonForgotten(t *testing.T) {
	for name, all := range map[string][]time.Duration{
		"one":                      {cold, warm, warm},
		"one, and an interruption": {cold, warm, warm, time.Millisecond},
		"two, and an interruption": {cold, cold, warm, warm, time.Millisecond},
	} {
		var p parts
		if said := p.take(all...); said != warm {
			t.Errorf("%s: what is said is %v, not %v", name, said, warm)
		}
	}
	var p parts
	p.takeMany(32, cold) // a lap of 64 KiB each
	if said := p.takeMany(2, warm); said != warm {
		t.Errorf("two parts behind the first lap: %v, not %v", said, warm)
	}
}

// TestPartsAreFollowedOnceTwoSayTheSame, in both directions, and one that was interrupted is not.
func TestPartsAreFollowedOnceTwoSayTheSame(t *testing.T) {
	var p parts
	p.takeMany(200, warm)
	for range 3 * timedOf { // whichever of them is timed
		if said := p.take(time.Millisecond); said != warm {
			t.Fatalf("one that was interrupted is believed: %v", said)
		}
		p.takeMany(2*timedOf, warm)
	}
	for _, now := range []time.Duration{cold, warm, warm / 2} {
		if said := p.takeMany(timedOf+1, now); said != now {
			t.Errorf("%d of %v, and what is said is %v", timedOf+1, now, said)
		}
	}
}

// TestPartsThatAreSeldomAreTimed: a way that is only tried now and then is not known by what it took before the machine
// changed.
func TestPartsThatAreSeldomAreTimed(t *testing.T) {
	var p parts
	p.takeMany(200, warm)
	p.count += 300 // parts of other kinds
	if said := p.take(cold, cold); said != cold {
		t.Errorf("the second part after a change: %v, not %v", said, cold)
	}
}

func TestFewPartsAreTimed(t *testing.T) {
	var p parts
	p.takeMany(timedFirst+10*timedOf, warm)
	if want := timedFirst + 10; p.timed != want {
		t.Errorf("%d of %d parts were timed, not %d", p.timed, timedFirst+10*timedOf, want)
	}
}
