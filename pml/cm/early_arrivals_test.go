package cm_test

import (
	"encoding/binary"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestGoodbyeBeforeTheCard: a fast member makes a communicator, sends, and leaves
// before this one knows who it is.
func TestGoodbyeBeforeTheCard(t *testing.T) {
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

// TestWhatOneThatHasGoneHadSentEarlyGoes: a process that opens one session after the other
// may have each bounded number kept once only.
func TestWhatOneThatHasGoneHadSentEarlyGoes(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	m := w.Procs[0].Module
	card := w.Procs[1].Card()
	peer := w.Group()[1].Life
	for life, end := range []func(){
		func() { net.Inject(0, goodbye(w.Group()[0].Nonce, peer.Nonce, 0)) },
		func() { // the card of the next life
			if err := m.Learn(framework.Life{ID: peer.ID, Nonce: 2000}, card); err != nil {
				t.Fatal(err)
			}
		},
		func() { m.PeerFailed(peer, "killed") },
	} {
		peer.Nonce = uint64(1000 + life)
		if err := m.Learn(peer, card); err != nil {
			t.Fatal(err)
		}
		const n = 100
		for i := range n {
			b := goodbye(w.Group()[0].Nonce, peer.Nonce, 0)
			b[0] = 1 // a request
			binary.LittleEndian.PutUint64(b[24:], 1<<40)
			binary.LittleEndian.PutUint64(b[32:], uint64(i))
			net.Inject(0, b)
		}
		until(t, "requests", func() bool { return pmltest.Inspect(m).EarlyArrivals == n })
		end()
		until(t, "the end of what was kept", func() bool { return pmltest.Inspect(m).EarlyArrivals == 0 })
	}
}

// TestTooManyEarlyControlMessagesAreDroppedAndNobodyWaits: what a process may have
// kept for communicators to come is bounded; who has asked in vain is told when the
// communicator is made, and who has closed it meanwhile is heard again.
func TestTooManyEarlyControlMessagesAreDroppedAndNobodyWaits(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 3)
	m := w.Procs[0].Module
	flood := func(from uint64) {
		for i := range 1<<16 + 10 {
			b := goodbye(w.Group()[0].Nonce, from, 0)
			b[0] = 1 // a request
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
	flood(999) // a stranger who knows the nonce
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
		pmltest.Inspect(m) // progresses
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
		until(t, "rest", func() bool { _, _, resting := w.Procs[rank].Module.CIDs().Counts(); return resting == 0 })
	}
}
