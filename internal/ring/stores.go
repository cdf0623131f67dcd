package ring

import (
	"time"

	"github.com/ferrympi/ferry/internal/cpu"
)

// Where the consumer's core is far away, stores to lines that its cache has are slower than
// memory is. So the payload of a larger frame that is Put is stored past the caches then. What
// stores take is measured now and then, as that changes when processors move.

const (
	// choiceFrom is the size of frames from which there is a choice, in bytes. The way through
	// memory is some 0.3 us longer.
	choiceFrom = 4 << 10
	// slow is what stores take that are slower than memory, in ps per byte: 3 GB/s. Memory of
	// any machine is faster than that, written and read.
	slow = 333
	// usually and seldom are how many frames there are for each that is measured: of those
	// that go by the caches, and of those that go past them, where a measurement costs more.
	usually, seldom = 16, 128
	// sure is how many measurements in a row decide. One may have been interrupted.
	sure = 3
)

// stores is what is known of stores to a ring.
type stores struct {
	past bool  // go past the caches
	left uint8 // frames until the next measurement
	odds uint8 // measurements in a row that spoke against past
}

// store copies the payload of a frame.
func (s *stores) store(dst, payload []byte) {
	if !cpu.Streams || len(payload) < choiceFrom {
		cpu.CopyShared(dst, payload)
		return
	}
	if s.left > 0 {
		s.left--
		if s.past {
			cpu.CopyPast(dst, payload)
		} else {
			cpu.CopyShared(dst, payload)
		}
		return
	}
	start := time.Now()
	cpu.CopyShared(dst, payload)
	s.took(time.Since(start), len(payload))
}

// took takes in what ordinary stores of n bytes took.
func (s *stores) took(d time.Duration, n int) {
	if (int(d)*1000 > slow*n) == s.past {
		s.odds = 0
	} else if s.odds++; s.odds == sure {
		s.past, s.odds = !s.past, 0
	}
	switch {
	case s.odds > 0: // at once, to be sure
		s.left = 0
	case s.past:
		s.left = seldom
	default:
		s.left = usually
	}
}
