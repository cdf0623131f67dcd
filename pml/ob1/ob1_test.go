package ob1_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stack is the usual stack of one node.
func stack() pmltest.Stack {
	return pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.Component()}}
}

// heap is the same with rings in Go memory, which the race detector observes.
func heap() pmltest.Stack {
	return pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.OnHeap()}}
}

func TestContract(t *testing.T) {
	// The race detector observes Go memory only.
	if !underRace {
		t.Run("files", func(t *testing.T) { pmltest.Run(t, stack(), pmltest.Policies...) })
	}
	t.Run("heap", func(t *testing.T) {
		if !underRace {
			needs.Time(t)
		}
		pmltest.Run(t, heap(), pmltest.Policies...)
	})
	t.Run("every ability", func(t *testing.T) {
		pmltest.Run(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{btltest.NewMemory(btltest.Options{Step: 5000})}}, cid.PolicyAgree)
	})
	t.Run("added processes", func(t *testing.T) {
		s := heap()
		s.First = kittest.AddedFirst
		pmltest.Run(t, s, cid.PolicyLazy)
	})
}

// The transports overwrite each frame after it has been handled.
func TestContract_FramesPoisonedAfterUse(t *testing.T) {
	policies := []cid.Policy{cid.PolicyLazy, cid.PolicyAgree}
	if underRace {
		// Lazy, since its first messages use the slow path.
		policies = policies[:1]
	}
	pmltest.Run(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{
		pmltest.Poisoned(self.Component()), pmltest.Poisoned(shm.OnHeap())}}, policies...)
	pmltest.Run(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{
		pmltest.Poisoned(btltest.NewMemory(btltest.Options{NoRead: true, Step: 5000}))}}, policies[0])
}

func TestMessage_Steady_AllocatesNothing(t *testing.T) { pmltest.NoAllocations(t, stack()) }

func TestHandles_ThousandsInAProcess_ShareTables(t *testing.T) { pmltest.Handles(t, heap()) }
