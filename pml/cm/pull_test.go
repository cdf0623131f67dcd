package cm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// A receive from a process that has left ends when all messages of that process are accounted
// for. These tests cover messages that no receive will match.

// endsWithGoodbye closes rank 1 while rank 0 waits on c for a message of it.
func endsWithGoodbye(t *testing.T, w *pmltest.World, c []pml.Comm) {
	t.Helper()
	r := start(t)(recvInto(c[0], 1, 3))
	leave(t, w, 1)
	_, err := r.wait(t)
	wantErr(t, "a receive", err, framework.ErrPeerClosed)
}

// TestGoodbye_MessageOnOtherPlaneOrCommunicator_ReceiveEnds covers a message on another communicator and one on
// another plane, without receives.
func TestGoodbye_MessageOnOtherPlaneOrCommunicator_ReceiveEnds(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 2)
		a, b := w.Comms(t, cid.PolicyLazy), w.Comms(t, cid.PolicyAgree)
		meet(t, b, 1)
		for plane := range pml.Plane(pml.Planes) {
			for _, c := range []pml.Comm{a[1], b[1]} {
				if _, err := c.Isend(text("kept"), 0, 1, plane, pml.Standard); err != nil {
					t.Fatal(err)
				}
			}
		}
		closed := w.Comms(t, cid.PolicyLazy)
		send(t, closed[1], 0, 1, "dropped")
		closed[0].Close()
		endsWithGoodbye(t, w, b)
		for _, c := range []pml.Comm{a[0], b[0]} {
			receive(t, c, 1, 1, "kept")
		}
		until(t, "rest", func() bool { _, _, quarantined := w.Procs[0].Module.CIDs().Counts(); return quarantined == 0 })
	})
}

// TestGoodbye_MessageIsClaimed_ReceiveEnds covers a claimed message that is received late.
func TestGoodbye_MessageIsClaimed_ReceiveEnds(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 2)
		c := w.Comms(t, cid.PolicyAgree)
		var claimed []pml.Claimed
		for _, kept := range []bool{false, true} {
			send(t, c[1], 0, 1, "claimed")
			if kept {
				if _, err := c[0].Probe(t.Context(), 1, 1, pml.PointToPoint); err != nil {
					t.Fatal(err)
				}
				cm.Pull(w.Procs[0].Module, 1)
			}
			k, _, err := c[0].Mprobe(t.Context(), 1, 1, pml.PointToPoint)
			if err != nil {
				t.Fatal(err)
			}
			claimed = append(claimed, k)
		}
		endsWithGoodbye(t, w, c)
		for _, k := range claimed {
			buf := make([]byte, 7)
			if _, err := k.Recv(t.Context(), pml.Buffer{Bytes: buf}); err != nil || string(buf) != "claimed" {
				t.Errorf("received %q: %v", buf, err)
			}
		}
	})
}

// TestGoodbye_MessageToUnknownCommunicator_ReceiveEnds covers a message to a communicator that is never
// created here.
func TestGoodbye_MessageToUnknownCommunicator_ReceiveEnds(t *testing.T) {
	defer cm.SetMaxFruitlessSearches(1)()
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 2)
		c := w.Comms(t, cid.PolicyAgree)
		meet(t, c, 1)
		m := w.Procs[1].Module
		local, err := m.CIDs().Reserve()
		if err != nil {
			t.Fatal(err)
		}
		alone, err := m.AddComm(pml.CommSpec{ID: w.NextID(), Local: local, Agreed: true, Members: pml.NewMembers(w.Group()), Rank: 1})
		if err != nil {
			t.Fatal(err)
		}
		send(t, alone, 0, 1, "never received")
		endsWithGoodbye(t, w, c)
	})
}

// TestPull_OtherMembersSend_TheirMessagesStay checks that messages of live members stay in the
// network, and that receives from them do not wait for the pull.
func TestPull_OtherMembersSend_TheirMessagesStay(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 3)
		c := w.Comms(t, cid.PolicyAgree)
		meet(t, c, 1)
		meet(t, c, 2) // A process has statistics once a message was received.
		for range 20 {
			send(t, c[2], 0, 9, "of another")
		}
		send(t, c[1], 0, 1, "wanted later")
		if _, err := c[0].Probe(t.Context(), 2, 9, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		endsWithGoodbye(t, w, c)
		var taken uint64
		for _, s := range w.Procs[0].Module.Stats() {
			taken += s.Unexpected
		}
		if taken != 1 {
			t.Errorf("%d messages were taken out of the network, want 1", taken)
		}
		for range 20 {
			receive(t, c[0], 2, 9, "of another")
		}
		receive(t, c[0], 1, 1, "wanted later")
	})
}

// TestPull_ManyMessages_IsBoundedAndKeepsOrder covers members that send without a pause, since receives
// wait for the end of a pull. The remaining messages keep their order.
func TestPull_ManyMessages_IsBoundedAndKeepsOrder(t *testing.T) {
	const n, most = 5000, 4096
	w := pmltest.OpenWorld(t, stack(eager), 2)
	c := w.Comms(t, cid.PolicyAgree)
	for i := range n {
		send(t, c[1], 0, i, "message")
	}
	if _, err := c[0].Probe(t.Context(), 1, n-1, pml.PointToPoint); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{most, n} {
		cm.Pull(w.Procs[0].Module, 1)
		if got := len(pmltest.Inspect(w.Procs[0].Module).Comms[0].Unexpected); got != want {
			t.Errorf("%d messages are unexpected, want %d", got, want)
		}
	}
	for i := range n {
		if st, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: make([]byte, 7)}, pml.AnySource, pml.AnyTag, pml.PointToPoint); err != nil || st.Tag != i {
			t.Fatalf("message %d: %+v %v", i, st, err)
		}
	}
}

// TestPull_NewReceive_MatchesPulledMessage checks that the receive does not wait for the end of the pull.
// Receives that wait already come first.
func TestPull_NewReceive_MatchesPulledMessage(t *testing.T) {
	s, st := newSlowProbes(3, mtltest.Options{})
	w := pmltest.OpenWorld(t, st, 2)
	c := w.Comms(t, cid.PolicyAgree)
	for _, text := range []string{"first", "second", "third"} {
		send(t, c[0], 1, 1, text)
	}
	if _, err := c[1].Probe(t.Context(), 0, 1, pml.PointToPoint); err != nil {
		t.Fatal(err)
	}
	pulled := s.pull(t, w.Procs[1].Module, 0)
	receive(t, c[1], 0, 1, "first")
	receive(t, c[1], pml.AnySource, pml.AnyTag, "second")
	ctx, cancel := context.WithCancel(t.Context())
	probed := make(chan error)
	go func() {
		_, err := c[1].Probe(ctx, 0, 1, pml.PointToPoint)
		probed <- err
	}()
	cancel()
	if err := <-probed; !errors.Is(err, context.Canceled) {
		t.Errorf("a probe whose context has ended: %v", err)
	}
	wants := start(t)(c[1].Irecv(pml.Buffer{Bytes: make([]byte, 8)}, pml.AnySource, 1, pml.PointToPoint))
	later := start(t)(c[1].Irecv(pml.Buffer{Bytes: make([]byte, 8)}, 0, pml.AnyTag, pml.PointToPoint))
	s.release()
	if st, err := wants.wait(t); err != nil || st.Bytes != len("third") {
		t.Errorf("the receive that was posted first: %+v %v", st, err)
	}
	<-pulled
	send(t, c[0], 1, 2, "fourth")
	if st, err := later.wait(t); err != nil || st.Tag != 2 {
		t.Errorf("the receive that was posted then: %+v %v", st, err)
	}
}
