package ring

import (
	"testing"
	"time"
)

const (
	near = 16 << 10 * time.Nanosecond / 9 // 9 GB/s
	far  = 16 << 10 * time.Nanosecond / 2 // 2 GB/s
)

func TestStoreSelector_SlowStores_UsesNonTemporal(t *testing.T) {
	var s storeSelector
	for _, d := range []time.Duration{near, far, near, far, far, near} {
		s.addProbe(d, 16<<10)
	}
	if s.usePast {
		t.Error("isolated slow stores changed the selection")
	}
	for range requiredProbes {
		s.addProbe(far, 16<<10)
	}
	if !s.usePast {
		t.Error("ordinary stores at 2 GB/s")
	}
	for range requiredProbes {
		s.addProbe(near, 16<<10)
	}
	if s.usePast {
		t.Error("non-temporal stores although ordinary ones reach 9 GB/s")
	}
}

// Each probe of slow stores delays a message.
func TestStoreSelector_ManyFrames_ProbesRarely(t *testing.T) {
	for _, d := range []time.Duration{near, far} {
		var s storeSelector
		measured := 0
		for range 10_000 {
			if s.untilProbe > 0 {
				s.untilProbe--
				continue
			}
			s.addProbe(d, 16<<10)
			measured++
		}
		if limit := 10_000/cachedInterval + requiredProbes; measured > limit {
			t.Errorf("stores of %v: %d of 10,000 were measured", d, measured)
		}
	}
}
