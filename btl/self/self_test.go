package self

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl/btltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: Component()}).Run(t)
}

// The size of frames is close to that of the ring.
func TestContract_SmallestRing_Holds(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: Component(), Params: func(_ int, p any) { p.(*params).RingSize = 4 << 10 }}).Run(t)
}
