package threads_test

import (
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
	"github.com/ferrympi/ferry/pml/threads"
)

// overOb1 is processes with goroutine ranks, ranks of each, and ob1 over a BTL between them.
func overOb1(b btl.Component, change func(*threads.Params), ranks ...int) pmltest.Stack {
	s := stack(change)
	s.PML, s.BTLs, s.Ranks = ob1.Component(), []btl.Component{self.Component(), b}, ranks
	return s
}

// TestContract_SeveralProcesses: each rank in a process of its own, and ranks in two and three
// processes.
func TestContract_SeveralProcesses(t *testing.T) {
	for _, ranks := range [][]int{nil, {2, 2}, {1, 2, 5}} {
		t.Run(fmt.Sprint("shm, ranks ", ranks), func(t *testing.T) {
			pmltest.Run(t, overOb1(shm.OnHeap(), nil, ranks...), cid.PolicyAgree)
		})
	}
	t.Run("tcp, tiny", func(t *testing.T) {
		pmltest.Run(t, overOb1(tcp.Component(), tiny, 2, 2), cid.PolicyAgree)
	})
}

// TestMessage_SteadyStateOfSeveralProcesses_AllocatesNothing: between ranks of different processes.
func TestMessage_SteadyStateOfSeveralProcesses_AllocatesNothing(t *testing.T) {
	if underRace {
		t.Skip("pools drop objects at random under the race detector")
	}
	pmltest.NoAllocations(t, overOb1(shm.OnHeap(), nil))
}

// overCM is processes with goroutine ranks, ranks of each, and cm over a network in memory between
// them. Processes on the same one of several nodes use ob1 between them.
func overCM(nodes int, ranks ...int) pmltest.Stack {
	s := stack(nil)
	s.PML, s.MTL, s.Ranks = cm.Component(), mtltest.NewMemory(mtltest.Options{Inject: 8 << 10}).Component(), ranks
	if nodes > 0 {
		s.Node, s.BTLs, s.Nodes = ob1.Component(), []btl.Component{self.Component(), shm.OnHeap()}, nodes
	}
	return s
}

// TestContract_NetworkMatches: a network matches the messages of other processes, with and without
// ob1 on the node.
func TestContract_NetworkMatches(t *testing.T) {
	for _, nodes := range []int{0, 1, 2} {
		for _, ranks := range [][]int{nil, {2, 2}, {1, 2, 5}} {
			t.Run(fmt.Sprintf("%d nodes, ranks %v", nodes, ranks), func(t *testing.T) {
				pmltest.Run(t, overCM(nodes, ranks...), cid.PolicyAgree)
			})
		}
	}
}
