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
	if !(before <= x.Begin && x.Begin < x.Serving && x.Serving < x.Over && x.Over < x.Done && x.Done <= cpu.Monotonic()) || len(x.Ranks) != 3 {
		t.Errorf("%+v", x)
	}
	last := x.Serving
	for n, r := range x.Ranks {
		if r.Rank != n || !(last <= r.Fork && r.Fork < r.Started && r.Started < r.Ended && r.Ended <= x.Over) {
			t.Errorf("rank %d: %+v", n, r)
		}
		last = r.Started
	}
}
