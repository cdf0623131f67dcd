package threads

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/progress"
	"go.uber.org/goleak"
)

// impatient engines park without spinning.
var impatient = progress.Options{Spin: time.Nanosecond, Yield: time.Nanosecond}

func newTestTeam(t testing.TB, par *params, n int, opt progress.Options) *colltest.Team {
	team, err := colltest.NewTeam(Component(), par, n, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(team.Close)
	return team
}

var standard = params{FlatRanks: 2, ChunkSize: 16 << 10, ReduceMost: 512 << 10}

// sum is the sum of uint64 values.
var sum = colltest.Sum64

func TestRanks_ParkAtOnce_NoWakeUpIsLost(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, processors := range []int{1, 2} {
		for _, n := range []int{2, 3, 5, 9, 70} {
			t.Run(fmt.Sprintf("GOMAXPROCS=%d/ranks=%d", processors, n), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
				for _, opt := range []progress.Options{impatient, {}} {
					if err := newTestTeam(t, &standard, n, opt).Check(t.Context(), 3+200/n, 8, 2000, 20000); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
