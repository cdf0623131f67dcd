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

func TestComponent_ContractKit_Passes(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}

// smallChunks has the smallest chunks. An element may be larger than a chunk.
type smallChunks struct{ component }

func (smallChunks) Query(_ any, shape coll.Shape) *coll.Offer {
	if shape.Size > 5 { // Too slow.
		return nil
	}
	return component{}.Query(&params{AreaSize: 1, MaxSize: 1 << 20, MaxOfTwo: 1 << 20, MaxReduce: 1 << 20}, shape)
}

func TestComponent_SmallChunks_PassesContractKit(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(smallChunks{}).Run(t)
}

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

// The scripts list the steps of each member.
func TestSchedules_AllOperations_MatchScripts(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(Component(), &params{AreaSize: 1 << 20, MaxSize: 64 << 10, MaxOfTwo: 64 << 10, MaxReduce: 64 << 10})
	})
}
