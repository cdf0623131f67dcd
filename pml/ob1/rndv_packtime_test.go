package ob1

import (
	"testing"
	"time"
)

const cold, warm = 22 * time.Microsecond, 2 * time.Microsecond

// parts simulates the fragments for one process.
type parts struct {
	packTime
	count uint64
	timed int
}

// take packs fragments with the given times, and returns the time in the last RTS.
func (p *parts) take(all ...time.Duration) time.Duration {
	for _, elapsed := range all {
		p.count++
		if p.packTime.shouldTime(p.count) {
			p.add(p.count, elapsed)
			p.timed++
		}
	}
	return p.usual
}

func (p *parts) takeMany(n int, elapsed time.Duration) time.Duration {
	for range n {
		p.take(elapsed)
	}
	return p.usual
}

// The first fragments use new memory. If they spoil the estimate, the receiver avoids the
// pipeline for protocols that take three times as long.
func TestPackTime_SlowFirstFragments_AreForgotten(t *testing.T) {
	for name, all := range map[string][]time.Duration{
		"one":                      {cold, warm, warm},
		"one, and an interruption": {cold, warm, warm, time.Millisecond},
		"two, and an interruption": {cold, cold, warm, warm, time.Millisecond},
	} {
		var p parts
		if sent := p.take(all...); sent != warm {
			t.Errorf("%s: the RTS has %v, want %v", name, sent, warm)
		}
	}
	var p parts
	// One lap of the ring with 64 KiB each.
	p.takeMany(32, cold)
	if sent := p.takeMany(2, warm); sent != warm {
		t.Errorf("two fragments behind the first lap: %v, want %v", sent, warm)
	}
}

// The estimate follows a change in either direction, and ignores an interruption.
func TestPackTime_TwoEqualTimes_AreFollowed(t *testing.T) {
	var p parts
	p.takeMany(200, warm)
	// Until one of these is timed.
	for range 3 * timeEvery {
		if sent := p.take(time.Millisecond); sent != warm {
			t.Fatalf("an interruption changed the estimate to %v", sent)
		}
		p.takeMany(2*timeEvery, warm)
	}
	for _, now := range []time.Duration{cold, warm, warm / 2} {
		if sent := p.takeMany(timeEvery+1, now); sent != now {
			t.Errorf("%d fragments of %v: the RTS has %v", timeEvery+1, now, sent)
		}
	}
}

// The time of a mode that only probes use is not older than a change of the costs.
func TestPackTime_RareMode_IsTimed(t *testing.T) {
	var p parts
	p.takeMany(200, warm)
	// Fragments in other modes.
	p.count += 300
	if sent := p.take(cold, cold); sent != cold {
		t.Errorf("second fragment after a change: %v, want %v", sent, cold)
	}
}

func TestPackTime_SteadyTimes_FewAreTimed(t *testing.T) {
	var p parts
	p.takeMany(timeFirst+10*timeEvery, warm)
	if want := timeFirst + 10; p.timed != want {
		t.Errorf("%d of %d fragments were timed, want %d", p.timed, timeFirst+10*timeEvery, want)
	}
}
