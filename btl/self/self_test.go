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

// TestSmallestRingKeepsTheContract: frames come near to the size of the ring.
func TestSmallestRingKeepsTheContract(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: Component(), Params: func(_ int, p any) { p.(*params).RingSize = 4 << 10 }}).Run(t)
}
