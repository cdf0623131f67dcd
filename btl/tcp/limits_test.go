package tcp

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/btl"
)

// The smaller peer may dial first, and a path may open again over existing links.
func TestLimits_SmallerPeer_AreReportedForEachPath(t *testing.T) {
	small := func(rank int, p *params) {
		if rank == 1 {
			p.FrameLimit, p.EagerLimit = 1<<10, 512
		}
	}
	j := newJob(t, 2, small)
	a, b := j.procs[0], j.procs[1]
	j.send(b.connect(a), []byte("it calls"))
	j.until("the frame", func() bool { return len(a.got) == 1 })
	want := [][2]int{{1 << 10, 1 << 10}}
	for range 2 {
		e := a.connect(b)
		if e.Reserve(1<<10+1, btl.RingStart) != nil {
			t.Fatal("a frame may go before the protocol has heard of the peer's limits")
		}
		j.until("room", func() bool { return e.Reserve(1, btl.RingStart) != nil })
		if !slices.Equal(a.limits, want) {
			t.Errorf("reported limits are %v, want %v", a.limits, want)
		}
		e.Close()
		want = append(want, want[0])
	}
	if len(b.limits) != 0 {
		t.Errorf("limits reported to the smaller one: %v", b.limits)
	}
}
