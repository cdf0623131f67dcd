package hier

import (
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework/scripttest"
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
	return component{}.Query(&params{AreaSize: 1, MaxSize: 1 << 20}, shape)
}

func TestComponent_SmallChunks_PassesContractKit(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(smallChunks{}).Run(t)
}

// The scripts list the steps of each member.
func TestSchedules_AllOperations_MatchScripts(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(Component(), &params{AreaSize: 1 << 20, MaxSize: 1 << 20})
	})
}
