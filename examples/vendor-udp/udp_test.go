package udp

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestComponent_ContractKit_Passes(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: Component()}).Run(t)
}

func TestComponent_SmallestLimits_PassesContractKit(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: Component(), Params: func(_ int, p any) {
		p.(*params).Datagram, p.(*params).Window, p.(*params).Address = btl.MinFrameLimit+headerSize+ackSize, 1, "::1"
	}}).Run(t)
}

func TestComponent_UnderOB1_Passes(t *testing.T) {
	pmltest.Run(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), Component()}}, pmltest.Policies...)
}
