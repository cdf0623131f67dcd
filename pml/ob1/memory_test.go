package ob1_test

import (
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestProcess_SmallMessagesOnly_HasNoStateForLargeOnes(t *testing.T) {
	copies(t)
	w := pmltest.OpenWorld(t, copyStack("auto", cma.Read, cma.Write), 2)
	cs, err := w.Comm(cid.PolicyAgree)
	if err != nil {
		t.Fatal(err)
	}
	exchange := func(size int) {
		t.Helper()
		r, err := cs[0].Isend(pml.Buffer{Bytes: make([]byte, size)}, 1, 1, pml.PointToPoint, pml.Standard)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cs[1].Recv(t.Context(), pml.Buffer{Bytes: make([]byte, size)}, 0, 1, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(t.Context(), r.Generation()); err != nil {
			t.Fatal(err)
		}
	}
	has := func() [2]bool {
		sends, _ := ob1.StateOf(w.Procs[0].Module.(*ob1.Module), w.Procs[1].Incarnation)
		_, receives := ob1.StateOf(w.Procs[1].Module.(*ob1.Module), w.Procs[0].Incarnation)
		return [2]bool{sends, receives}
	}
	for _, size := range []int{0, 8, 1000} {
		exchange(size)
	}
	if got := has(); got != [2]bool{} {
		t.Errorf("after small messages, state for large ones sent and received: %v", got)
	}
	for range 4 {
		exchange(1 << 20)
	}
	if got := has(); got != [2]bool{true, true} {
		t.Errorf("after large messages, state for large ones sent and received: %v", got)
	}
}
