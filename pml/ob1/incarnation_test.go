package ob1_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// newComm returns rank 0's end of a communicator of the world's processes.
func newComm(t *testing.T, w *pmltest.World) pml.Comm {
	t.Helper()
	m := w.Procs[0].Module
	local, err := m.CIDs().Reserve()
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.AddComm(pml.CommSpec{ID: w.NextID(), Local: local, Members: pml.NewMembers(w.Group())})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bounded returns a context that turns a hang into a failure.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestLearn_FormerIncarnationFailed_NewOneIsAlive(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 2)
	m := w.Procs[0].Module
	m.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "signal: killed"))
	if err := m.Learn(w.Reborn(1, 77), w.Procs[1].Card()); err != nil {
		t.Fatal(err)
	}
	c := newComm(t, w)
	r, err := c.Irecv(pml.Buffer{}, 1, 1, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	if st, done, err := r.Test(r.Generation()); done {
		t.Errorf("a receive from the new life has ended: %+v %v", st, err)
	}
}

// A process closes its session and opens it again, while its peer keeps a communicator with
// the former incarnation. Operations with that end, and the communicator can be closed.
func TestLearn_PeerReopened_FormerOperationsEnd(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 3)
	c := w.Comms(t, cid.PolicyAgree)
	r, err := c[0].Irecv(pml.Buffer{}, 1, 1, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	any, err := c[0].Irecv(pml.Buffer{Bytes: make([]byte, 1)}, pml.AnySource, 2, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Procs[0].Module.Learn(w.Reborn(1, 77), w.Procs[1].Card()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(bounded(t), r.Generation()); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("a receive from the earlier life: %v", err)
	}
	// It left in good order, so another member may still serve a receive from any source.
	if _, done, err := any.Test(any.Generation()); done {
		t.Errorf("a receive from any source has ended: %v", err)
	}
	if err := c[0].Send(bounded(t), pml.Buffer{Bytes: []byte{1}}, 0, 2, pml.PointToPoint, pml.Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := any.Wait(bounded(t), any.Generation()); err != nil {
		t.Fatal(err)
	}
}

// The receiver has never sent anything to the process that fails.
func TestPeerFailed_MessageInRing_Arrives(t *testing.T) {
	for range 50 {
		w := pmltest.OpenWorld(t, stack(), 2)
		c := w.Comms(t, cid.PolicyAgree)
		ctx := bounded(t)
		buf := make([]byte, 1)
		if err := pmltest.Each(c, func(rank int, c pml.Comm) error {
			if rank == 1 {
				return c.Send(ctx, pml.Buffer{Bytes: []byte{1}}, 0, 1, pml.PointToPoint, pml.Standard)
			}
			_, err := c.Recv(ctx, pml.Buffer{Bytes: buf}, 1, 1, pml.PointToPoint)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		r, err := c[0].Irecv(pml.Buffer{Bytes: buf}, 1, 2, pml.PointToPoint)
		if err != nil {
			t.Fatal(err)
		}
		// The message is in the ring when the failure is reported.
		if err := c[1].Send(ctx, pml.Buffer{Bytes: []byte{2}}, 0, 2, pml.PointToPoint, pml.Standard); err != nil {
			t.Fatal(err)
		}
		w.Procs[0].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "signal: killed"))
		if _, err := r.Wait(ctx, r.Generation()); err != nil || buf[0] != 2 {
			t.Fatalf("got %d: %v", buf[0], err)
		}
	}
}

// Both ranks close with an unreceived large message from the other one.
func TestClose_UnreceivedLargeSends_Complete(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 2)
	c := w.Comms(t, cid.PolicyAgree)
	var reqs [2]*pml.Request
	for rank := range c {
		var err error
		if reqs[rank], err = c[rank].Isend(pml.Buffer{Bytes: make([]byte, 1<<20)}, 1-rank, 1, pml.PointToPoint, pml.Standard); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range c {
		c[rank].Close()
	}
	for _, r := range reqs {
		if _, err := r.Wait(bounded(t), r.Generation()); err != nil {
			t.Error(err)
		}
	}
}

// The index may belong to another communicator.
func TestClose_LaterUse_ReturnsErrClosed(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 1)
	old := w.Comms(t, cid.PolicyAgree)[0]
	old.Close()
	c := w.Comms(t, cid.PolicyAgree)[0]
	ctx := bounded(t)
	buf := pml.Buffer{Bytes: make([]byte, 4)}
	if err := old.Send(ctx, buf, 0, 1, pml.PointToPoint, pml.Standard); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if _, err := old.Isend(buf, 0, 1, pml.PointToPoint, pml.Standard); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("Isend: %v", err)
	}
	if _, err := old.Recv(ctx, buf, 0, 1, pml.PointToPoint); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("Recv: %v", err)
	}
	if _, err := old.Probe(ctx, 0, 1, pml.PointToPoint); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("Probe: %v", err)
	}
	if err := c.Send(ctx, buf, 0, 1, pml.PointToPoint, pml.Standard); err != nil {
		t.Error(err)
	}
	if _, err := c.Recv(ctx, buf, 0, 1, pml.PointToPoint); err != nil {
		t.Error(err)
	}
}

func TestClose_BlockedProbe_ReturnsErrClosed(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 1)
	c := w.Comms(t, cid.PolicyAgree)[0]
	ended := make(chan error)
	go func() {
		_, err := c.Probe(bounded(t), 0, 1, pml.PointToPoint)
		ended <- err
	}()
	c.Close()
	if err := <-ended; !errors.Is(err, framework.ErrClosed) {
		t.Errorf("Probe: %v", err)
	}
}

// A card claims the nonce of another process. A failure of that process is still reported.
func TestLearn_ForgedNonce_FailureIsStillReported(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 3)
	m := w.Procs[0].Module
	victim, liar := w.Group()[1].Incarnation, w.Group()[2].Incarnation
	liar.Nonce = victim.Nonce
	for range 2 {
		// With or without an error.
		_ = m.Learn(liar, w.Procs[2].Card())
		liar.ID++
	}
	c := newComm(t, w)
	m.PeerChanged(framework.FailedEvent(victim, "signal: killed"))
	if _, err := c.Recv(bounded(t), pml.Buffer{}, 1, 1, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("a receive from a dead process: %v", err)
	}
}
