package cm_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eager is a network that takes messages of some size at once, as providers do.
var eager = mtltest.Options{Inject: 8 << 10}

func TestContract(t *testing.T) {
	pmltest.Run(t, pmltest.Stack{PML: cm.Component(), MTL: mtltest.NewMemory(eager).Component()}, pmltest.Policies...)
}
