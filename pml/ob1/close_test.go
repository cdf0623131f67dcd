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

// The communicator closes while an operation on another plane is pending. It takes no new
// receive, even if the message is already in the ring.
func TestRecv_CommunicatorCloses_ReturnsErrClosed(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 2)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cs, err := w.Comm(cid.PolicyAgree)
	if err != nil {
		t.Fatal(err)
	}
	send := func(tag int, plane pml.Plane) {
		if err := cs[0].Send(ctx, pml.Buffer{Bytes: []byte{1}}, 1, tag, plane, pml.Standard); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(plane pml.Plane) error {
		_, err := cs[1].Recv(ctx, pml.Buffer{Bytes: make([]byte, 1)}, 0, 1, plane)
		return err
	}
	send(1, pml.PointToPoint)
	if err := receive(pml.PointToPoint); err != nil {
		t.Fatal(err)
	}
	pending, err := cs[1].Irecv(pml.Buffer{Bytes: make([]byte, 1)}, 0, 2, pml.Control)
	if err != nil {
		t.Fatal(err)
	}
	cs[1].Close()
	send(1, pml.PointToPoint)
	if err := receive(pml.PointToPoint); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("receive on a closing communicator: %v", err)
	}
	send(2, pml.Control)
	if _, err := pending.Wait(ctx, pending.Generation()); err != nil {
		t.Error(err)
	}
	cs[0].Close()
}

// All receives of a process find their messages at the first poll. It still transfers a large
// message that has matched.
func TestRecv_AlwaysFindsMessage_LargeMessageProgresses(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 2)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	cs := w.Comms(t, cid.PolicyAgree)
	const rounds, size = 30000, 8 << 20
	other := make(chan error, 1)
	go func() {
		b := pml.Buffer{Bytes: make([]byte, 8)}
		for range rounds {
			if _, err := cs[1].Recv(ctx, b, 0, 1, pml.PointToPoint); err != nil {
				other <- err
				return
			}
			if err := cs[1].Send(ctx, b, 0, 1, pml.PointToPoint, pml.Standard); err != nil {
				other <- err
				return
			}
		}
		other <- nil
	}()
	large, err := cs[0].Irecv(pml.Buffer{Bytes: make([]byte, size)}, 0, 5, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	send, err := cs[0].Isend(pml.Buffer{Bytes: make([]byte, size)}, 0, 5, pml.PointToPoint, pml.Standard)
	if err != nil {
		t.Fatal(err)
	}
	done := -1
	b := pml.Buffer{Bytes: make([]byte, 8)}
	for i := range rounds {
		if err := cs[0].Send(ctx, b, 1, 1, pml.PointToPoint, pml.Standard); err != nil {
			t.Fatal(err)
		}
		if _, err := cs[0].Recv(ctx, b, 1, 1, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		w.Procs[0].Engine.Lock()
		if done < 0 && large.Done() {
			done = i
		}
		w.Procs[0].Engine.Unlock()
	}
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	if done < 0 {
		t.Errorf("a message of %d bytes to itself has not arrived after %d receives", size, rounds)
	}
	for _, r := range []*pml.Request{large, send} {
		if _, err := r.Wait(ctx, r.Generation()); err != nil {
			t.Error(err)
		}
	}
}
