package ob1_test

import (
	"testing"

	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/ob1/choose"
	"github.com/ferrympi/ferry/progress"
)

// A sender without a processor of its own does not copy meanwhile.
func TestFirstWay_NumberOfProcessesChanges_FollowsIt(t *testing.T) {
	engine := progress.New(progress.Options{NodeProcs: 1, Processors: 2})
	defer engine.Close()
	for _, c := range []struct {
		procs int
		want  choose.Way
	}{{1, choose.Wide}, {3, choose.Read}, {2, choose.Wide}} {
		engine.SetNodeProcs(c.procs)
		if way := ob1.FirstWay(engine); way != c.want {
			t.Errorf("%d processes on 2 processors: %v, want %v", c.procs, way, c.want)
		}
	}
}

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
