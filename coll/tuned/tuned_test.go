package tuned

import (
	"flag"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/framework/scripttest"
	"go.uber.org/goleak"
)

// small is the component with segments of some elements: the kit's blocks have many.
func small() coll.Component { return segmented{Component(), 1 << 10} }

type segmented struct {
	coll.Component
	size framework.Size
}

func (c segmented) Query(_ any, shape coll.Shape) *coll.Offer {
	p := kittest.Params(c.Component, nil).(*params)
	p.BcastSegment, p.ReduceSegment = c.size, c.size
	return c.Component.Query(p, shape)
}

var full = flag.Bool("full", false, "the kit with the default segments too, of which its blocks have one")

func TestContract(t *testing.T) {
	if !*full {
		t.Skip("TestContractInManySegments covers more; -full runs this one too")
	}
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}

func TestContractInManySegments(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(small()).Run(t)
}

// TestSchedules shows what each member does, with 2, 3, 5 and 8 of them.
func TestSchedules(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(segmented{Component(), 64}, nil)
	})
}
