package threads_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
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

// TestContract_SeveralProcesses covers one process for each rank, and ranks in two and three processes.
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

// TestMessage_SteadyStateOfSeveralProcesses_AllocatesNothing covers ranks of different processes.
func TestMessage_SteadyStateOfSeveralProcesses_AllocatesNothing(t *testing.T) {
	if underRace {
		t.Skip("pools drop objects at random under the race detector")
	}
	t.Run("ob1", func(t *testing.T) { pmltest.NoAllocations(t, overOb1(shm.OnHeap(), nil)) })
	t.Run("cm", func(t *testing.T) { pmltest.NoAllocations(t, overCM(0)) })
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

// TestContract_NetworkMatches covers a network that matches the messages of other processes, with and without ob1 on
// the node.
func TestContract_NetworkMatches(t *testing.T) {
	for _, nodes := range []int{0, 1, 2} {
		for _, ranks := range [][]int{nil, {2, 2}, {1, 2, 5}} {
			t.Run(fmt.Sprintf("%d nodes, ranks %v", nodes, ranks), func(t *testing.T) {
				pmltest.Run(t, overCM(nodes, ranks...), cid.PolicyAgree)
			})
		}
	}
}

// TestPath_Fails_EndsOperationsAtBothEnds expects ErrTransport, and ErrProcFailedPending for a receive from any source.
// Ranks of the same process continue.
func TestPath_Fails_EndsOperationsAtBothEnds(t *testing.T) {
	s := overOb1(btlfault.Wrap(btltest.NewMemory(btltest.Options{}), btlfault.Plan{KillAfter: 40}), nil, 2, 2)
	w := pmltest.OpenWorld(t, s, 4) // ranks 0 and 2 are of the first process
	c := w.Comms(t, cid.PolicyAgree)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := pml.Buffer{Bytes: make([]byte, 8)}
	receive := func(rank, src int) (wait func() error) {
		r, err := c[rank].Irecv(pml.Buffer{Bytes: make([]byte, 8)}, src, 1, p2p)
		if err != nil {
			t.Fatal(err)
		}
		generation := r.Generation()
		return func() error { _, err := r.Wait(ctx, generation); return err }
	}
	wild, known, opposite := receive(2, pml.AnySource), receive(2, 1), receive(3, 0)
	for err := error(nil); err == nil; {
		if err = c[1].Send(ctx, b, 0, 2, p2p, pml.Standard); err == nil {
			_, err = c[0].Recv(ctx, b, 1, 2, p2p)
		}
	}
	if err := wild(); !errors.Is(err, framework.ErrProcFailedPending) {
		t.Errorf("receive from any source: %v", err)
	}
	for what, wait := range map[string]func() error{"receive": known, "receive at the other end": opposite} {
		if err := wait(); !errors.Is(err, framework.ErrTransport) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := c[0].Send(ctx, b, 2, 3, p2p, pml.Standard); err != nil {
		t.Error(err)
	}
	if st, err := c[2].Recv(ctx, b, 0, 3, p2p); err != nil || st.Source != 0 {
		t.Errorf("from a rank of the same process: %+v, %v", st, err)
	}
}

// TestTeamClose_CommunicatorsOpen_EndsOperations covers a receive of another process's message. Later messages are
// dropped.
func TestTeamClose_CommunicatorsOpen_EndsOperations(t *testing.T) {
	w, err := pmltest.NewWorld(overOb1(shm.OnHeap(), nil), 2)
	if err != nil {
		t.Fatal(err)
	}
	c := w.Comms(t, cid.PolicyAgree)
	r, err := c[0].Irecv(pml.Buffer{Bytes: make([]byte, 8)}, 1, 1, p2p)
	if err != nil {
		t.Fatal(err)
	}
	generation := r.Generation()
	if err := c[1].Send(t.Context(), pml.Buffer{Bytes: make([]byte, 8)}, 0, 2, p2p, pml.Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := c[0].Probe(t.Context(), 1, 2, p2p); err != nil {
		t.Fatal(err)
	}
	if err := w.Kill(0); err != nil {
		t.Error(err)
	}
	if _, err := r.Wait(t.Context(), generation); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("pending receive: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestRanks_ThousandsInTwoProcesses_TakeLittleMemory checks that tables by rank exist once per process, also in the PML
// below.
func TestRanks_ThousandsInTwoProcesses_TakeLittleMemory(t *testing.T) {
	ranks := 2000
	if underRace {
		ranks = 200
	}
	w := pmltest.OpenWorld(t, overOb1(shm.OnHeap(), nil, ranks, ranks), 2*ranks)
	before := heapInUse()
	comms := w.Comms(t, cid.PolicyAgree)
	buf := pml.Buffer{Bytes: make([]byte, 8)}
	for _, d := range []int{1, 2, ranks} {
		for rank, c := range comms {
			if err := c.Send(t.Context(), buf, (rank+d)%len(comms), d, p2p, pml.Standard); err != nil {
				t.Fatal(err)
			}
		}
		for rank, c := range comms {
			if _, err := c.Recv(t.Context(), buf, (rank+len(comms)-d)%len(comms), d, p2p); err != nil {
				t.Fatal(err)
			}
		}
	}
	each := (heapInUse() - before) / uint64(len(comms))
	t.Logf("%d bytes for each rank", each)
	if each > 16<<10 {
		t.Errorf("%d bytes for each rank, without its ring", each)
	}
	for _, c := range comms {
		c.Close()
	}
}
