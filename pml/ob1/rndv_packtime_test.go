package ob1

import (
	"testing"
	"time"
)

const cold, warm = 22 * time.Microsecond, 2 * time.Microsecond

// parts are the parts that one process gets.
type parts struct {
	packTime
	count uint64
	timed int
}

// take has parts that take so long packed, and returns what the RTS of the last one says.
func (p *parts) take(all ...time.Duration) time.Duration {
	for _, took := range all {
		p.count++
		if p.packTime.shouldTime(p.count) {
			p.add(p.count, took)
			p.timed++
		}
	}
	return p.usual
}

func (p *parts) takeMany(n int, took time.Duration) time.Duration {
	for range n {
		p.take(took)
	}
	return p.usual
}

// TestPackTime_SlowFirstFragments_AreForgotten: the first part of all meets memory that no core knows yet. When the average began with that, an RTS
// said ten times the truth for a hundred messages, and ways by frames were given up for ways that take three times as long.
func TestPackTime_SlowFirstFragments_AreForgotten(t *testing.T) {
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

// TestPackTime_TwoEqualTimes_AreFollowed, in both directions, and one that was interrupted is not.
func TestPackTime_TwoEqualTimes_AreFollowed(t *testing.T) {
	var p parts
	p.takeMany(200, warm)
	for range 3 * timeEvery { // whichever of them is timed
		if said := p.take(time.Millisecond); said != warm {
			t.Fatalf("one that was interrupted is believed: %v", said)
		}
		p.takeMany(2*timeEvery, warm)
	}
	for _, now := range []time.Duration{cold, warm, warm / 2} {
		if said := p.takeMany(timeEvery+1, now); said != now {
			t.Errorf("%d of %v, and what is said is %v", timeEvery+1, now, said)
		}
	}
}

// TestPackTime_RareMode_IsTimed: a way that is only tried now and then is not known by what it took before the machine
// changed.
func TestPackTime_RareMode_IsTimed(t *testing.T) {
	var p parts
	p.takeMany(200, warm)
	p.count += 300 // parts of other kinds
	if said := p.take(cold, cold); said != cold {
		t.Errorf("the second part after a change: %v, not %v", said, cold)
	}
}

func TestPackTime_SteadyTimes_FewAreTimed(t *testing.T) {
	var p parts
	p.takeMany(timeFirst+10*timeEvery, warm)
	if want := timeFirst + 10; p.timed != want {
		t.Errorf("%d of %d parts were timed, not %d", p.timed, timeFirst+10*timeEvery, want)
	}
}
