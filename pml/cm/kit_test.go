package cm_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eager is a network that accepts messages of up to some size at once, as providers do.
var eager = mtltest.Options{Inject: 8 << 10, MaxMessage: 16 << 20}

// over returns cm over an in-memory network.
func over(net *mtltest.Memory) pmltest.Stack {
	return pmltest.Stack{PML: cm.Component(), MTL: net.Component()}
}

// stack returns over, on a network of its own.
func stack(opt mtltest.Options) pmltest.Stack { return over(mtltest.NewMemory(opt)) }

// onNodes returns stack for processes on this number of nodes, with shared memory within each
// node.
func onNodes(nodes int, opt mtltest.Options) pmltest.Stack {
	s := stack(opt)
	s.Node, s.BTLs, s.Nodes = ob1.Component(), []btl.Component{self.Component(), shm.OnHeap()}, nodes
	return s
}

func TestContract(t *testing.T) {
	pmltest.Run(t, stack(eager), pmltest.Policies...)
	t.Run("added processes", func(t *testing.T) {
		s := stack(eager)
		s.First = kittest.AddedFirst
		pmltest.Run(t, s, cid.PolicyLazy)
	})
}

// TestContract_LateDelivery uses a network that completes sends of any length at once
// and delivers messages later, as providers with their own progress do.
func TestContract_LateDelivery(t *testing.T) {
	needs.Time(t)
	late := mtltest.Options{Inject: 4 << 20, Faults: mtltest.Faults{Polls: 5}}
	pmltest.Run(t, stack(late), cid.PolicyLazy, cid.PolicyAgree)
}

func TestMessage_SteadyState_AllocatesNothing(t *testing.T) { pmltest.NoAllocations(t, stack(eager)) }
