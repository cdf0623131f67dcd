package shm

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/framework/scripttest"
	"github.com/ferrympi/ferry/progress"
	"go.uber.org/goleak"
)

func TestContract(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}

// tight has areas in which little is posted at a time: all goes in pieces, and an element may
// be larger than that.
type tight struct{ component }

func (tight) Query(_ any, shape coll.Shape) *coll.Offer {
	if shape.Size > 5 { // it would only take long
		return nil
	}
	return component{}.Query(&params{AreaSize: 1, Most: 1 << 20, MostOf2: 1 << 20, Reduce: 1 << 20}, shape)
}

func TestContractInPieces(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(tight{}).Run(t)
}

// TestRanks_ParkAtOnce_NoWakeUpIsLost: bells wake goroutines that are ranks of one process.
func TestRanks_ParkAtOnce_NoWakeUpIsLost(t *testing.T) {
	defer goleak.VerifyNone(t)
	impatient := progress.Options{Spin: time.Nanosecond, Yield: time.Nanosecond}
	for _, n := range []int{2, 3, 9} {
		for _, opt := range []progress.Options{impatient, {}} {
			team, err := colltest.NewTeam(Component(), kittest.Params(Component(), nil), n, opt)
			if err != nil {
				t.Fatal(err)
			}
			if err := team.Check(t.Context(), 300/n, 8, 2000, 40000); err != nil {
				t.Error(err)
			}
			team.Close()
		}
	}
}

// TestSchedules shows what each member does.
func TestSchedules(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(Component(), &params{AreaSize: 1 << 20, Most: 64 << 10, MostOf2: 64 << 10, Reduce: 64 << 10})
	})
}
