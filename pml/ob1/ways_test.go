package ob1_test

import (
	"testing"

	"github.com/ferrympi/ferry/pml/ob1"
)

// TestMessagesThroughMemoryThatIsNewSayNothing: of whatever size they are, they go once through all of the ring.
func TestMessagesThroughMemoryThatIsNewSayNothing(t *testing.T) {
	const ring = 1 << 20
	for _, size := range []int64{48 << 10, 64 << 10, 4 << 20} {
		var in ob1.Incoming
		n := int64(0)
		for in.FirstLap(size, ring) {
			n++
		}
		if n*size < ring || (n-1)*size >= ring {
			t.Errorf("%d messages of %d bytes say nothing, of a ring of %d", n, size, ring)
		}
	}
}
