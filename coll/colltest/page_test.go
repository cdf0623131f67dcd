package colltest_test

import (
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/scripttest"
)

// The component of docs/writing-a-component.md. A test of btl/btltest compares the two.

func Component() coll.Component {
	return component{framework.Basic{Kind: framework.Coll, Name: "acme", Version: "1.0.0", Summary: "bcast round a ring"}}
}

type component struct{ framework.Basic }

func (component) Query(_ any, shape coll.Shape) *coll.Offer {
	return &coll.Offer{Priority: 35, Algorithms: []coll.Algorithm{{Op: coll.Bcast, Name: "ring", From: 1 << 20, Plan: bcast}}}
}

func bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	if m.Rank != a.Root {
		s.Recv(out, a.Size, m.Plus(-1))
		s.Wait()
	}
	if next := m.Plus(1); next != a.Root {
		s.Send(out, a.Size, next)
	}
}

func TestContract(t *testing.T) { colltest.Cases(Component()).Run(t) }

func TestSchedules(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) { return colltest.Script(Component(), nil) })
}
