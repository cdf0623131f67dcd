package progress

import (
	"testing"
	"time"
)

// yieldsOfWait returns how often a wait of a few polls yields the processor, after one that has
// read the clock.
func yieldsOfWait(t *testing.T, e *Engine) uint32 {
	t.Helper()
	wait := func(polls int) (yields uint32) {
		var c Completion
		s := &teller{then: func(n int) {
			if n == polls {
				e.Complete(&c)
			}
		}}
		before := e.yieldCount
		if err := e.Wait(nil, &c, s); err != nil {
			t.Fatal(err)
		}
		return e.yieldCount - before
	}
	e.Lock()
	defer e.Unlock()
	wait(pollsPerClock + 1)
	e.extendedSpin = extendedSpin{yieldsAtExtension: e.yieldCount - 1} // Extended spinning has failed.
	return wait(pollsBeforeYield + 2)
}

func TestSetNodeProcs_MoreThanProcessors_WaitsYieldAtOnce(t *testing.T) {
	const long, short = time.Hour, OversubscribedSpin
	for _, c := range []struct {
		spin           time.Duration
		procs          int
		yields         bool
		oversubscribed bool
	}{
		{0, 0, false, false}, {0, 2, false, false}, {0, 3, true, true}, {0, 2, false, false},
		{long, 3, false, true}, {short, 1, true, false}, {short, 0, true, false},
	} {
		e := New(Options{Spin: c.spin, Yield: time.Hour, NodeProcs: 2, Processors: 2}) // No wait parks.
		if e.NodeProcs() != 2 || e.IsOversubscribed() {
			t.Errorf("new engine: %d processes, oversubscribed: %v", e.NodeProcs(), e.IsOversubscribed())
		}
		e.SetNodeProcs(c.procs)
		yields := yieldsOfWait(t, e)
		e.Lock()
		budget := e.PollBudget()
		e.Unlock()
		if (yields > 0) != c.yields || (budget == 1) != c.yields || e.NodeProcs() != c.procs || e.IsOversubscribed() != c.oversubscribed {
			t.Errorf("spin %v, %d processes: %d yields, budget %d, oversubscribed %v; want yields %v, oversubscribed %v",
				c.spin, e.NodeProcs(), yields, budget, e.IsOversubscribed(), c.yields, c.oversubscribed)
		}
		e.Close()
	}
}

// The number of one engine changes, in both directions.
func TestSetNodeProcs_RisesAndFalls_LaterWaitsFollow(t *testing.T) {
	process := newEngine(t, Options{Yield: time.Hour, NodeProcs: 1, Processors: 2})
	m := newMailbox(t, process)
	for _, procs := range []int{1, 8, 2, 3, 1} {
		m.e.SetNodeProcs(procs) // a rank's engine has the number of its process
		oversubscribed := procs > 2
		if yields := yieldsOfWait(t, process); (yields > 0) != oversubscribed {
			t.Errorf("%d processes: %d yields", procs, yields)
		}
		if p := newPace(nil, m.e); p.hasNeighbors != oversubscribed || (p.spinTime == OversubscribedSpin) != oversubscribed {
			t.Errorf("%d processes: a rank's wait begins with %+v", procs, p)
		}
		if budget := m.e.currentPollBudget(); (budget == 1) != oversubscribed {
			t.Errorf("%d processes: a rank's poll budget is %d", procs, budget)
		}
	}
}

// One stream does not count as a further wait, because its process mostly has no other wait at the same time.
func TestSetStreams_OpenAndEnd_LaterWaitsFollow(t *testing.T) {
	for _, isStream := range []bool{false, true} {
		e := newEngine(t, Options{Yield: time.Hour, NodeProcs: 2, Processors: 4, IsStream: isStream})
		for _, c := range []struct {
			streams, procs int
			yields         bool
		}{{1, 4, false}, {2, 2, false}, {3, 2, true}, {2, 3, true}, {0, 4, false}} {
			e.SetNodeProcs(c.procs)
			e.SetStreams(c.streams)
			if yields := yieldsOfWait(t, e); (yields > 0) != c.yields || e.NodeProcs() != c.procs || e.IsOversubscribed() {
				t.Errorf("stream %t, %d streams, %d processes: %d yields", isStream, c.streams, c.procs, yields)
			}
		}
	}
}

func TestShare_MoreStreamsThanProcessors_IsTrue(t *testing.T) {
	for x, want := range map[struct{ procs, engines, streams int32 }]bool{
		{1, 1, 0}: true, {2, 1, 0}: false, {2, 2, 0}: true, {2, 1, 1}: false, {2, 1, 2}: false, {2, 1, 3}: true, {4, 1, 4}: false,
	} {
		if got := share(x.procs, x.engines, x.streams); got != want {
			t.Errorf("%+v: %t", x, got)
		}
	}
}
