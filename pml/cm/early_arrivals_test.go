package cm_test

import (
	"encoding/binary"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestGoodbye_BeforeCard_IsEarlyArrival covers a fast member that creates a communicator, sends, and
// leaves before its card has come.
func TestGoodbye_BeforeCard_IsEarlyArrival(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	m := w.Procs[0].Module
	next := w.Reborn(1, 1234567)
	net.Inject(0, goodbye(w.Group()[0].Nonce, next.Nonce, 0))
	until(t, "the goodbye", func() bool { return pmltest.Inspect(m).EarlyArrivals == 1 })
	if err := m.Learn(next, w.Procs[1].Card()); err != nil {
		t.Fatal(err)
	}
	_, err := start(t)(isend(join(t, w, w.NextID(), 0), 1, 1, pml.Standard)).wait(t)
	wantErr(t, "a send to it", err, framework.ErrPeerClosed)
	if n := pmltest.Inspect(m).EarlyArrivals; n != 0 {
		t.Errorf("%d are kept still", n)
	}
}

// TestEarlyArrivals_ProcessHasEnded_AreDropped guards the memory of a process that opens one session
// after the other. The bound holds for each incarnation.
func TestEarlyArrivals_ProcessHasEnded_AreDropped(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	m := w.Procs[0].Module
	card := w.Procs[1].Card()
	peer := w.Group()[1].Incarnation
	for incarnation, end := range []func(){
		func() { net.Inject(0, goodbye(w.Group()[0].Nonce, peer.Nonce, 0)) },
		func() { // The card of the next incarnation.
			if err := m.Learn(framework.Incarnation{ID: peer.ID, Nonce: 2000}, card); err != nil {
				t.Fatal(err)
			}
		},
		func() { m.PeerChanged(framework.FailedEvent(peer, "killed")) },
	} {
		peer.Nonce = uint64(1000 + incarnation)
		if err := m.Learn(peer, card); err != nil {
			t.Fatal(err)
		}
		const n = 100
		for i := range n {
			b := goodbye(w.Group()[0].Nonce, peer.Nonce, 0)
			b[0] = 1 // A request.
			binary.LittleEndian.PutUint64(b[24:], 1<<40)
			binary.LittleEndian.PutUint64(b[32:], uint64(i))
			net.Inject(0, b)
		}
		until(t, "requests", func() bool { return pmltest.Inspect(m).EarlyArrivals == n })
		end()
		until(t, "the end of what was kept", func() bool { return pmltest.Inspect(m).EarlyArrivals == 0 })
	}
}

// TestEarlyArrivals_QueueIsFull_SendsComplete checks the bound of the early-arrival
// queue. Senders of dropped requests get the id when the communicator is created, and senders
// of dropped closes report again.
func TestEarlyArrivals_QueueIsFull_SendsComplete(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 3)
	m := w.Procs[0].Module
	flood := func(from uint64) {
		for i := range 1<<16 + 10 {
			b := goodbye(w.Group()[0].Nonce, from, 0)
			b[0] = 1 // A request.
			binary.LittleEndian.PutUint64(b[24:], 1<<40)
			binary.LittleEndian.PutUint64(b[32:], uint64(i))
			net.Inject(0, b)
		}
	}
	id := w.NextID()
	second := join(t, w, id, 2)
	kept := start(t)(isend(second, 0, 1, pml.Standard))
	until(t, "the question of rank 2", func() bool { return pmltest.Inspect(m).EarlyArrivals == 1 })
	flood(w.Group()[1].Nonce)
	flood(999) // An unknown peer that knows the nonce.
	until(t, "the flood", func() bool { return pmltest.Inspect(m).EarlyArrivals == 1+2<<16 })
	first := join(t, w, id, 1)
	lost := start(t)(isend(first, 0, 1, pml.Synchronous))
	gone := w.NextID()
	withdrawn := join(t, w, gone, 1)
	r := start(t)(isend(withdrawn, 0, 1, pml.Standard))
	if err := r.r.Cancel(r.gen); err != nil {
		t.Fatal(err)
	}
	withdrawn.Close()
	until(t, "the rest", func() bool {
		pmltest.Inspect(m) // It makes progress.
		return m.Stats()[0].Dropped > 10
	})
	for _, s := range []started{kept, lost} {
		if s.r.Done() {
			t.Error("a send to a communicator that is not there is over")
		}
	}
	c := join(t, w, id, 0)
	receive(t, c, 1, 1, "message")
	receive(t, c, 2, 1, "message")
	for _, s := range []started{kept, lost} {
		if _, err := s.wait(t); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []pml.Comm{join(t, w, gone, 0), join(t, w, gone, 2), c, first, second} {
		c.Close()
	}
	for rank := range 3 {
		until(t, "rest", func() bool { _, _, quarantined := w.Procs[rank].Module.CIDs().Counts(); return quarantined == 0 })
	}
}
