package ring

import (
	"time"

	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/learner"
)

// stores is how the payload of a larger frame of Put is stored. For a cross-cache pair, ordinary
// stores to lines in the consumer's cache are slower than memory.
type stores uint8

const (
	cached stores = iota
	// past is non-temporal stores, which go past the caches.
	past
	storeKinds
)

const (
	// selectFrom is the smallest frame for non-temporal stores, in bytes. Their latency is some
	// 0.3 us longer.
	selectFrom = 4 << 10
	// pastCost is the cost of non-temporal stores in ps per byte. The producer's time lacks the
	// consumer's loads from memory, and does not measure them. It is 3 GB/s, below the memory
	// bandwidth of any machine.
	pastCost = 333
	// measureEvery is the number of frames for one that is measured and selects.
	measureEvery = 16
)

// storeSelector selects the stores of frames.
type storeSelector struct {
	// selector is nil until the first larger frame.
	selector *learner.Selector[stores]
	frames   uint8
}

// copyPayload copies the payload of a frame.
func (s *storeSelector) copyPayload(dst, payload []byte) {
	if !cpu.Streams || len(payload) < selectFrom {
		cpu.CopyShared(dst, payload)
		return
	}
	if s.selector == nil {
		selector := learner.New(learner.Shape{Options: int(storeKinds), Probe: 1, Run: 1}, cached)
		s.selector = &selector
	}
	if s.frames++; s.frames%measureEvery != 0 {
		s.selector.Best().copy(dst, payload)
		return
	}
	kind := s.next()
	start := time.Now()
	kind.copy(dst, payload)
	s.record(kind, len(payload), time.Since(start))
}

func (k stores) copy(dst, payload []byte) {
	if k == past {
		cpu.CopyPast(dst, payload)
	} else {
		cpu.CopyShared(dst, payload)
	}
}

// next selects the stores of a measured frame.
func (s *storeSelector) next() stores {
	kind, _ := s.selector.Select(learner.Of(cached, past))
	return kind
}

// record adds the elapsed time of a measured frame of n bytes.
func (s *storeSelector) record(kind stores, n int, elapsed time.Duration) {
	if kind == past {
		elapsed = time.Duration(n * pastCost / 1000)
	}
	s.selector.Record(kind, int64(n), int64(elapsed), true)
}
