package launch

import (
	"testing"

	"github.com/ferrympi/ferry/internal/cpu"
)

func TestTrace_IsInOrderOfTime(t *testing.T) {
	before := cpu.Monotonic()
	j := shell(t, 3, "exit 0")
	res, err := j.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := res.Trace
	if !(before <= x.CalledAt && x.CalledAt < x.ServingAt && x.ServingAt < x.RanksEndedAt && x.RanksEndedAt < x.TidiedUpAt && x.TidiedUpAt <= cpu.Monotonic()) || len(x.Ranks) != 3 {
		t.Errorf("%+v", x)
	}
	last := x.ServingAt
	for n, r := range x.Ranks {
		if r.Rank != n || !(last <= r.ForkRequestedAt && r.ForkRequestedAt < r.RunningAt && r.RunningAt < r.EndSeenAt && r.EndSeenAt <= x.RanksEndedAt) {
			t.Errorf("rank %d: %+v", n, r)
		}
		last = r.RunningAt
	}
}
