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

// small returns the component with small segments, so that the kit's blocks have several.
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
		t.Skip("TestContract_ManySegments covers more; -full runs this one too")
	}
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}

func TestContract_ManySegments(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(small()).Run(t)
}

// TestSchedules prints the steps of each member for 2, 3, 5 and 8 members.
func TestSchedules(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(segmented{Component(), 64}, nil)
	})
}
