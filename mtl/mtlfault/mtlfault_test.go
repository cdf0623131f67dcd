package mtlfault_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtlfault"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cases returns the cases of the kit for a module with faults.
func cases(plan mtlfault.Plan) kittest.Cases {
	return mtltest.Cases(mtltest.Subject{Component: mtlfault.Wrap(mtltest.NewMemory(mtltest.Options{}).Component(), "fault", "faults", plan)})
}

func TestKit_NoFaults_Passes(t *testing.T) { cases(mtlfault.Plan{}).Run(t) }

// Each fault fails a case about the violated claim.
func TestKit_EachFault_IsFound(t *testing.T) {
	for _, f := range []struct {
		caught, says string
		plan         mtlfault.Plan
	}{
		{"LateReceiversGetWhatEachSentInOrder", "were sent, and", mtlfault.Plan{Drop: 5}},
		{"LateReceiversGetWhatEachSentInOrder", "were sent, and", mtlfault.Plan{Duplicate: 5}},
		{"MessagesMatchInTheOrderOfTheirSends", "were sent, and", mtlfault.Plan{Reorder: 5}},
		{"MessagesOfEverySizeArriveWhole", "arrived changed", mtlfault.Plan{Corrupt: 5}},
	} {
		one, _ := cases(f.plan).Named(f.caught)
		if err := one.Do(t.Context()); err == nil || !strings.Contains(err.Error(), f.says) {
			t.Errorf("%+v: got %v", f.plan, err)
		}
	}
}

func TestWrap_InnerRegistered_BothAreFound(t *testing.T) {
	inner := mtltest.NewMemory(mtltest.Options{}).Component()
	r := framework.NewRegistry()
	r.Register(inner)
	r.Register(mtlfault.Wrap(inner, "drop", "loses messages", mtlfault.Plan{Drop: 20}))
	c, ok := r.Lookup(framework.MTL, "drop")
	if _, surveys := framework.As[mtl.Surveyor](c); !ok || surveys || !strings.Contains(c.Info().Summary, "loses") {
		t.Errorf("%v, %t", c, ok)
	}
}

// network is a module whose sends are in progress when they return, except those with one tag, which
// fail.
type network struct {
	mtl.Module
	fails int32
	sent  []int32 // Tags.
}

// component returns the module from Open.
type component struct {
	mtl.Component
	module *network
}

func (c component) Open(context.Context, mtl.Env) (mtl.Module, error) { return c.module, nil }

func (n *network) Send(_ *mtl.Op, _ mtl.Endpoint, e mtl.Envelope, _ []byte, _ mtl.Mode) (bool, error) {
	n.sent = append(n.sent, e.Tag)
	if e.Tag == n.fails {
		return false, errors.New("no way")
	}
	return false, nil
}

// A failure of the delayed message is not that of the message that overtakes it, and a failure of the
// latter does not lose the delayed one.
func TestSend_Reordered_FailuresAreIndependent(t *testing.T) {
	for fails, failed := range map[int32]bool{1: false, 2: true} {
		n := &network{fails: fails}
		m, err := mtlfault.Wrap(component{mtltest.NewMemory(mtltest.Options{}).Component(), n}, "fault", "faults", mtlfault.Plan{Reorder: 1}).Open(t.Context(), mtl.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if done, err := m.Send(nil, 1, mtl.Envelope{Tag: 1}, nil, mtl.Standard); !done || err != nil {
			t.Errorf("a message that waits: %t, %v", done, err)
		}
		if _, err := m.Send(nil, 1, mtl.Envelope{Tag: 2}, nil, mtl.Standard); (err != nil) != failed {
			t.Errorf("message 2, where %d fails: %v", fails, err)
		}
		if !slices.Equal(n.sent, []int32{2, 1}) {
			t.Errorf("where %d fails %v were sent", fails, n.sent)
		}
	}
}
