package tcp_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// smallest are the least limits that the parameters allow.
var smallest = tcp.Smallest

func TestContract(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: tcp.Component()}).Run(t)
}

func TestContractWithTheSmallestLimits(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: tcp.Component(), Params: smallest}).Run(t)
}

func TestCarriesOB1(t *testing.T) {
	pmltest.Run(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), tcp.Component()}}, pmltest.Policies...)
}
