package mtlfault_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtlfault"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func factory(plan mtlfault.Plan) mtltest.Factory {
	return func(context.Context) (mtltest.Subject, error) {
		return mtltest.Subject{Component: mtlfault.Wrap(mtltest.NewMemory(mtltest.Options{}).Component(), "fault", "faults", plan)}, nil
	}
}

func TestWithoutFaultsTheKitPasses(t *testing.T) { mtltest.Run(t, factory(mtlfault.Plan{})) }

// TestKitFindsEveryFault: each is an error of a case about what it breaks.
func TestKitFindsEveryFault(t *testing.T) {
	for _, f := range []struct {
		caught, says string
		plan         mtlfault.Plan
	}{
		{"LateReceiversGetWhatEachSentInOrder", "were sent, and", mtlfault.Plan{Drop: 5}},
		{"LateReceiversGetWhatEachSentInOrder", "were sent, and", mtlfault.Plan{Duplicate: 5}},
		{"MessagesMatchInTheOrderOfTheirSends", "were sent, and", mtlfault.Plan{Reorder: 5}},
		{"MessagesOfEverySizeArriveWhole", "arrived changed", mtlfault.Plan{Corrupt: 5}},
	} {
		for _, one := range mtltest.Cases(factory(f.plan)) {
			if one.Name != f.caught {
				continue
			}
			if err := one.Do(t.Context()); err == nil || !strings.Contains(err.Error(), f.says) {
				t.Errorf("%+v: the kit says %v", f.plan, err)
			}
		}
	}
}

func TestWrappedComponentHasAPlaceOfItsOwn(t *testing.T) {
	inner := mtltest.NewMemory(mtltest.Options{}).Component()
	r := framework.NewRegistry()
	r.Register(inner)
	r.Register(mtlfault.Wrap(inner, "drop", "loses messages", mtlfault.Plan{Drop: 20}))
	c, ok := r.Lookup(framework.MTL, "drop")
	if _, surveys := framework.As[mtl.Surveyor](c); !ok || surveys || !strings.Contains(c.Info().Summary, "loses") {
		t.Errorf("%v, %t", c, ok)
	}
}
