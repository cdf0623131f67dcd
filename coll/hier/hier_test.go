package hier

import (
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework/scripttest"
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
	return component{}.Query(&params{AreaSize: 1, Most: 1 << 20}, shape)
}

func TestContractInPieces(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(tight{}).Run(t)
}

// TestSchedules shows what each member does, on two nodes and more.
func TestSchedules(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(Component(), &params{AreaSize: 1 << 20, Most: 1 << 20})
	})
}
