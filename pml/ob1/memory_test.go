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
	has := func() bool {
		return ob1.HasSelections(w.Procs[1].Module.(*ob1.Module), w.Procs[0].Incarnation)
	}
	for _, size := range []int{0, 8, 1000} {
		exchange(size)
	}
	if has() {
		t.Error("selections exist after small messages")
	}
	for range 4 {
		exchange(1 << 20)
	}
	if !has() {
		t.Error("no selections after large messages")
	}
}
