package ring

import (
	"time"

	"github.com/ferrympi/ferry/internal/cpu"
)

// For a cross-cache pair, stores to lines in the consumer's cache are slower than memory. The
// payload of a larger frame of Put is then stored with non-temporal stores. A probe measures
// ordinary stores from time to time, since processes move between processors.

const (
	// selectFrom is the smallest frame for non-temporal stores, in bytes. Their latency is some
	// 0.3 us longer.
	selectFrom = 4 << 10
	// slowStores is the cost of stores that are slower than memory, in ps per byte. It is
	// 3 GB/s, below the memory bandwidth of any machine.
	slowStores = 333
	// cachedInterval and pastInterval are the numbers of frames between probes, with ordinary
	// and with non-temporal stores. A probe of ordinary stores costs more in the second case.
	cachedInterval, pastInterval = 16, 128
	// requiredProbes is the number of consecutive contrary probes that change the selection.
	// A single probe may have been interrupted.
	requiredProbes = 3
)

// storeSelector selects between ordinary and non-temporal stores.
type storeSelector struct {
	usePast    bool
	untilProbe uint8
	// Consecutive probes against usePast.
	contraryProbes uint8
}

// copyPayload copies the payload of a frame.
func (s *storeSelector) copyPayload(dst, payload []byte) {
	if !cpu.Streams || len(payload) < selectFrom {
		cpu.CopyShared(dst, payload)
		return
	}
	if s.untilProbe > 0 {
		s.untilProbe--
		if s.usePast {
			cpu.CopyPast(dst, payload)
		} else {
			cpu.CopyShared(dst, payload)
		}
		return
	}
	start := time.Now()
	cpu.CopyShared(dst, payload)
	s.addProbe(time.Since(start), len(payload))
}

// addProbe adds the elapsed time of ordinary stores of n bytes.
func (s *storeSelector) addProbe(elapsed time.Duration, n int) {
	if (int(elapsed)*1000 > slowStores*n) == s.usePast {
		s.contraryProbes = 0
	} else if s.contraryProbes++; s.contraryProbes == requiredProbes {
		s.usePast, s.contraryProbes = !s.usePast, 0
	}
	switch {
	case s.contraryProbes > 0:
		s.untilProbe = 0
	case s.usePast:
		s.untilProbe = pastInterval
	default:
		s.untilProbe = cachedInterval
	}
}
