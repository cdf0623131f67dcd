package ring

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/cpu"
)

const (
	near = 16 << 10 * time.Nanosecond / 9 // 9 GB/s
	far  = 16 << 10 * time.Nanosecond / 2 // 2 GB/s
)

// storeMachine simulates measured frames with an interruption in each fiftieth.
type storeMachine struct {
	storeSelector
	measured int
}

func newStoreMachine() *storeMachine {
	m := &storeMachine{}
	m.copyPayload(make([]byte, selectFrom), make([]byte, selectFrom))
	return m
}

// play measures n frames with ordinary stores of duration d, and returns the number with non-temporal stores.
func (m *storeMachine) play(n int, d time.Duration) (usePast int) {
	for range n {
		kind := m.next()
		elapsed := d
		if m.measured++; m.measured%50 == 0 {
			elapsed += time.Millisecond
		}
		m.record(kind, 16<<10, elapsed)
		if kind == past {
			usePast++
		}
	}
	return usePast
}

func TestStoreSelector_SlowStores_UsesNonTemporal(t *testing.T) {
	if !cpu.Streams {
		t.Skip("this processor has no non-temporal stores")
	}
	m := newStoreMachine()
	m.play(20, near)
	if n := m.play(1000, near); n > 30 {
		t.Errorf("%d of 1,000 frames with non-temporal stores although ordinary ones reach 9 GB/s", n)
	}
	m.play(20, far)
	if n := m.play(1000, far); n < 970 {
		t.Errorf("%d of 1,000 frames with non-temporal stores although ordinary ones reach 2 GB/s", n)
	}
	m.play(300, near) // One frame of measureEvery is measured, so that these are 4,800 frames.
	if n := m.play(1000, near); n > 30 {
		t.Errorf("%d of 1,000 frames with non-temporal stores although ordinary ones reach 9 GB/s again", n)
	}
}
