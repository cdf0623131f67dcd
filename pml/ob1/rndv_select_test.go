package ob1_test

import (
	"testing"

	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/ob1/selector"
	"github.com/ferrympi/ferry/progress"
)

// An oversubscribed sender cannot copy at the same time as the receiver.
func TestFirstProtocol_ProcessesChange_Follows(t *testing.T) {
	engine := progress.New(progress.Options{NodeProcs: 1, Processors: 2})
	defer engine.Close()
	for _, c := range []struct {
		procs int
		want  selector.Protocol
	}{{1, selector.PipelineFull}, {3, selector.Get}, {2, selector.PipelineFull}} {
		engine.SetNodeProcs(c.procs)
		if protocol := ob1.FirstProtocol(engine); protocol != c.want {
			t.Errorf("%d processes on 2 processors: %v, want %v", c.procs, protocol, c.want)
		}
	}
}

func TestFirstLap_AnySize_CoversRing(t *testing.T) {
	const ring = 1 << 20
	for _, size := range []int64{48 << 10, 64 << 10, 4 << 20} {
		var in ob1.LargeReceives
		n := int64(0)
		for in.FirstLap(size, ring) {
			n++
		}
		if n*size < ring || (n-1)*size >= ring {
			t.Errorf("%d messages of %d bytes say nothing, of a ring of %d", n, size, ring)
		}
	}
}
