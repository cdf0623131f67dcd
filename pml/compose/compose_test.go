package compose_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/compose"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onNodes returns cm over an in-memory network, and ob1 between processes of a node. Processes are assigned
// round-robin to this number of nodes.
func onNodes(nodes int, opt mtltest.Options) pmltest.Stack {
	return pmltest.Stack{
		PML: cm.Component(), MTL: mtltest.NewMemory(opt).Component(),
		Node: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.OnHeap()}, Nodes: nodes,
	}
}

// TestContract uses one node, and two in round-robin order, so that communicators of three have members on both.
func TestContract(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			pmltest.Run(t, onNodes(nodes, mtltest.Options{Inject: 8 << 10}), pmltest.Policies...)
		})
	}
}

func send(t *testing.T, c pml.Comm, dst, tag int, s string) {
	t.Helper()
	if err := c.Send(t.Context(), pml.Buffer{Bytes: []byte(s)}, dst, tag, pml.PointToPoint, pml.Standard); err != nil {
		t.Error(err)
	}
}

// started is a request and its handle.
type started struct {
	*pml.Request
	gen uint32
}

func irecv(t *testing.T, c pml.Comm, buf []byte, src, tag int) started {
	t.Helper()
	r, err := c.Irecv(pml.Buffer{Bytes: buf}, src, tag, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	return started{r, r.Generation()}
}

// until waits until cond holds, while the processes' progress goroutines run.
func until(t *testing.T, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it does not come to pass")
		}
	}
}

// TestClose_MatchedMessageInTransfer_BufferIsNotWritten covers a message of the node that has matched a receive from any source, and
// whose contents would come after the session has closed.
func TestClose_MatchedMessageInTransfer_BufferIsNotWritten(t *testing.T) {
	stack := onNodes(2, mtltest.Options{})
	stack.Set = map[string]string{"btl.shm.single_copy": "off"}
	w := pmltest.OpenWorld(t, stack, 3)
	c := w.Comms(t, cid.PolicyAgree)
	buf := make([]byte, 8<<20) // Longer than a ring.
	send(t, c[2], 0, 2, "opens the path")
	if _, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: buf}, 2, 2, pml.PointToPoint); err != nil {
		t.Fatal(err)
	}
	r := irecv(t, c[0], buf, pml.AnySource, 1)
	s, err := c[2].Isend(pml.Buffer{Bytes: bytes.Repeat([]byte{1}, len(buf))}, 0, 1, pml.PointToPoint, pml.Synchronous)
	if err != nil {
		t.Fatal(err)
	}
	gen := s.Generation()
	sender := w.Procs[2].Engine
	sender.Lock() // It has announced the message, and makes no further progress.
	until(t, func() bool {
		all, err := w.Procs[0].Module.Inspect(t.Context())
		for _, x := range all.Comms {
			if len(x.Sends) == 1 && x.Sends[0].State == "receiving" {
				return true
			}
		}
		return err != nil
	})
	incarnation := w.Procs[0].Incarnation
	if err := w.Kill(0); err != nil {
		t.Error(err)
	}
	if st, err := r.Wait(t.Context(), r.gen); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("the receive ended with %+v %v", st, err)
	}
	got := bytes.Clone(buf)
	sender.Unlock()
	w.Procs[2].Module.PeerChanged(framework.FailedEvent(incarnation, "its session is closed"))
	if _, err := s.Wait(t.Context(), gen); err == nil {
		t.Error("the message was sent")
	}
	if !bytes.Equal(buf, got) {
		t.Error("the buffer was written after the receive had ended")
	}
}

// TestWatch_BlockedProbeAndReceive_Continue covers operations of other goroutines that are blocked on the node before
// and while the watch starts.
func TestWatch_BlockedProbeAndReceive_Continue(t *testing.T) {
	w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{}), 3)
	for round := range 40 {
		c := w.Comms(t, cid.PolicyAgree)
		var blocked sync.WaitGroup
		blocked.Go(func() {
			buf := make([]byte, 8)
			st, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: buf}, 2, 1, pml.PointToPoint)
			if err != nil || string(buf[:st.Bytes]) != "first" {
				t.Errorf("round %d: received %q: %+v %v", round, buf, st, err)
			}
		})
		blocked.Go(func() {
			k, st, err := c[0].Mprobe(t.Context(), 2, 2, pml.PointToPoint)
			if err != nil || st.Source != 2 || st.Bytes != 6 {
				t.Errorf("round %d: probed %+v %v", round, st, err)
			} else if _, err := k.Recv(t.Context(), pml.Buffer{Bytes: make([]byte, 6)}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Duration(round%4) * 100 * time.Microsecond) // Before, at the same time, and after.
		anySource := irecv(t, c[0], make([]byte, 8), pml.AnySource, 3)
		send(t, c[2], 0, 2, "second")
		send(t, c[2], 0, 1, "first")
		send(t, c[round%2+1], 0, 3, "third")
		blocked.Wait()
		if st, err := anySource.Wait(t.Context(), anySource.gen); err != nil || st.Source != round%2+1 {
			t.Errorf("round %d: %+v %v", round, st, err)
		}
		for _, x := range c {
			x.Close()
		}
	}
}

// TestClose_WatchedPlanes_SendsFailAndIDsAreReused covers a closed communicator with watched planes. Synchronous sends of unreceived
// messages fail, and ids on the node are reused.
func TestClose_WatchedPlanes_SendsFailAndIDsAreReused(t *testing.T) {
	w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{}), 3)
	for range 10 {
		c := w.Comms(t, cid.PolicyLazy)
		buf := make([]byte, 8)
		anySource := irecv(t, c[0], buf, pml.AnySource, 1)
		local := irecv(t, c[0], buf, 2, 2)
		s, err := c[2].Isend(pml.Buffer{Bytes: make([]byte, 100000)}, 0, 9, pml.PointToPoint, pml.Synchronous)
		if err != nil {
			t.Fatal(err)
		}
		gen := s.Generation()
		until(t, func() bool { _, ok, err := c[0].Iprobe(2, 9, pml.PointToPoint); return ok || err != nil })
		c[0].Close()
		send(t, c[2], 0, 1, "for any")
		send(t, c[2], 0, 2, "for one")
		for _, r := range []started{anySource, local} { // Posted before the close.
			if st, err := r.Wait(t.Context(), r.gen); err != nil || st.Bytes != 7 || st.Source != 2 {
				t.Errorf("%+v %v", st, err)
			}
		}
		if _, err := s.Wait(t.Context(), gen); !errors.Is(err, framework.ErrCommClosed) {
			t.Errorf("an unreceived message: %v", err)
		}
		c[1].Close()
		c[2].Close()
	}
	until(t, func() bool {
		for _, p := range w.Procs {
			node := p.Module.(*compose.Module).Unwrap().(pml.Module)
			for _, m := range []pml.Module{p.Module, node} {
				if _, live, quarantined := m.CIDs().Counts(); live+quarantined > 0 {
					return false
				}
			}
		}
		return true
	})
}

// TestProbe_MemberLeavesDuringWithdrawal_Ends covers a probe during the withdrawal of a receive for a message of
// another member of the node.
func TestProbe_MemberLeavesDuringWithdrawal_Ends(t *testing.T) {
	w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{Faults: mtltest.Faults{Polls: 3000}}), 5)
	c := w.Comms(t, cid.PolicyAgree)
	buf := make([]byte, 8)
	first := irecv(t, c[0], buf, pml.AnySource, 1) // Starts the watch of the plane.
	send(t, c[4], 0, 1, "first")
	if _, err := first.Wait(t.Context(), first.gen); err != nil {
		t.Fatal(err)
	}
	incarnation := w.Procs[2].Incarnation
	incarnation.Nonce += 1000 // The next incarnation.
	if err := w.Procs[0].Module.Learn(incarnation, w.Procs[2].Card()); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { _, _, err := c[0].Iprobe(2, 9, pml.PointToPoint); return err != nil })
	asked := irecv(t, c[0], buf, pml.AnySource, 1)
	send(t, c[4], 0, 1, "second")
	until(t, func() bool {
		all, err := w.Procs[0].Module.Inspect(t.Context())
		for _, x := range all.Comms {
			if len(x.Unexpected) > 0 {
				return true
			}
		}
		return err != nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var other sync.WaitGroup
	other.Go(func() {
		if st, err := asked.Wait(t.Context(), asked.gen); err != nil || st.Source != 4 {
			t.Errorf("%+v %v", st, err)
		}
	})
	if _, err := c[0].Probe(ctx, 2, 9, pml.PointToPoint); !errors.Is(err, framework.ErrPeerClosed) {
		t.Errorf("a probe of a member that has left: %v", err)
	}
	other.Wait()
}

// TestRecvAnySource_PathOnNodeBreaks_Ends covers a failure that the bootstrap has not reported, so that the network's PML
// does not know of it.
func TestRecvAnySource_PathOnNodeBreaks_Ends(t *testing.T) {
	stack := onNodes(2, mtltest.Options{})
	stack.BTLs = []btl.Component{self.Component(), btlfault.Wrap(btltest.NewMemory(btltest.Options{}), btlfault.Plan{KillAfter: 20})}
	w := pmltest.OpenWorld(t, stack, 3)
	c := w.Comms(t, cid.PolicyAgree)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b := pml.Buffer{Bytes: make([]byte, 8)}
	posted := irecv(t, c[0], make([]byte, 8), pml.AnySource, 1)
	var probes sync.WaitGroup
	probes.Go(func() {
		if _, err := c[0].Probe(ctx, pml.AnySource, 9, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailedPending) {
			t.Errorf("a probe that waited: %v", err)
		}
	})
	for err := error(nil); err == nil; {
		if err = c[2].Send(ctx, b, 0, 2, pml.PointToPoint, pml.Standard); err == nil {
			_, err = c[0].Recv(ctx, b, 2, 2, pml.PointToPoint)
		}
	}
	if _, err := posted.Wait(ctx, posted.gen); !errors.Is(err, framework.ErrProcFailedPending) {
		t.Errorf("a receive that waited: %v", err)
	}
	probes.Wait()
	send(t, c[1], 0, 3, "probed")
	send(t, c[1], 0, 4, "received")
	until(t, func() bool { _, ok, err := c[0].Iprobe(1, 4, pml.PointToPoint); return ok || err != nil })
	if st, err := c[0].Probe(ctx, pml.AnySource, 3, pml.PointToPoint); err != nil || st.Source != 1 {
		t.Errorf("a probe for what the network has: %+v %v", st, err)
	}
	if st, err := c[0].Recv(ctx, b, pml.AnySource, 4, pml.PointToPoint); err != nil || st.Source != 1 {
		t.Errorf("a receive of what the network has: %+v %v", st, err)
	}
	if _, err := c[0].Recv(ctx, b, pml.AnySource, 2, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailedPending) {
		t.Errorf("a receive: %v", err)
	}
	if _, _, err := c[0].Iprobe(pml.AnySource, 2, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailedPending) {
		t.Errorf("a probe that does not wait: %v", err)
	}
}

func TestHandles_ThousandsInAProcess_ShareTables(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		pmltest.Handles(t, onNodes(nodes, mtltest.Options{}))
	}
}

// ownMembers are members that only this test uses.
type ownMembers struct{ pml.Members }

// The members of a large communicator may keep a table in shared memory in use.
func TestSplit_CommunicatorHasClosed_MembersAreFreed(t *testing.T) {
	w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{}), 1)
	m := w.Procs[0].Module
	freed := make(chan struct{})
	func() {
		members := &ownMembers{pml.NewMembers([]pml.Member{{Incarnation: w.Procs[0].Incarnation}})}
		runtime.AddCleanup(members, func(freed chan struct{}) { close(freed) }, freed)
		local, err := m.CIDs().Reserve()
		if err != nil {
			t.Fatal(err)
		}
		c, err := m.AddComm(pml.CommSpec{ID: cid.Extended{Base: 77}, Local: local, Members: members})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}()
	const mostRuns = 1000
	for range mostRuns {
		runtime.GC()
		select {
		case <-freed:
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the members of a closed communicator are in use")
}
