package ring

import (
	"testing"
	"time"
)

const (
	near = 16 << 10 * time.Nanosecond / 9 // 9 GB/s
	far  = 16 << 10 * time.Nanosecond / 2 // 2 GB/s
)

// TestStoresGoPastTheCachesWhereTheseAreSlow, and come back when the processors have moved.
func TestStoresGoPastTheCachesWhereTheseAreSlow(t *testing.T) {
	var s stores
	for _, d := range []time.Duration{near, far, near, far, far, near} {
		s.took(d, 16<<10)
	}
	if s.past {
		t.Error("a few slow stores, which may have been interrupted, decided")
	}
	for range sure {
		s.took(far, 16<<10)
	}
	if !s.past {
		t.Error("stores at 2 GB/s stay in the caches")
	}
	for range sure {
		s.took(near, 16<<10)
	}
	if s.past {
		t.Error("stores at 9 GB/s go past the caches")
	}
}

// TestStoresAreMeasuredSeldom: each measurement where they are slow costs a slow message.
func TestStoresAreMeasuredSeldom(t *testing.T) {
	for _, d := range []time.Duration{near, far} {
		var s stores
		measured := 0
		for range 10_000 {
			if s.left > 0 {
				s.left--
				continue
			}
			s.took(d, 16<<10)
			measured++
		}
		if most := 10_000/usually + sure; measured > most {
			t.Errorf("stores of %v: %d of 10,000 were measured", d, measured)
		}
	}
}
