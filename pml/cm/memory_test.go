package cm_test

import (
	"bytes"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestFree_SendIsHeld_IsPending checks that a held send uses its memory,
// although the network does not have it yet.
func TestFree_SendIsHeld_IsPending(t *testing.T) {
	for _, faults := range [][]string{nil, {"mr_local"}, {"max"}} {
		w := pmltest.OpenWorld(t, overProfile(t, "verbs;ofi_rxm", faults...), 2)
		from, ok := framework.As[pml.Allocator](w.Procs[0].Module)
		if !ok {
			t.Fatal("cm allocates nothing")
		}
		memory, err := from.Allocate(2 << 20)
		if err != nil {
			t.Fatal(err)
		}
		copy(memory, numbers(2<<20))
		c := w.Comms(t, cid.PolicyLazy) // The first send to a peer is held until its id is known.
		s := start(t)(c[0].Isend(pml.Buffer{Bytes: memory, Form: pml.InRegistered}, 1, 3, pml.PointToPoint, pml.Synchronous))
		wantErr(t, "free while a send uses it", from.Free(memory), framework.ErrPending)
		got := make([]byte, 2<<20)
		if _, err := c[1].Recv(t.Context(), pml.Buffer{Bytes: got}, 0, 3, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		if _, err := s.wait(t); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, memory) {
			t.Error("it arrives changed")
		}
		if err := from.Free(memory); err != nil {
			t.Error(err)
		}
	}
}

func TestAllocate_NetworkWithoutRegistration_IsUnsupported(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 1)
	from, ok := framework.As[pml.Allocator](w.Procs[0].Module)
	if !ok {
		t.Fatal("cm allocates nothing")
	}
	_, err := from.Allocate(1000)
	wantErr(t, "allocate", err, framework.ErrUnsupported)
	wantErr(t, "free", from.Free(make([]byte, 1000)), framework.ErrUnsupported)
}
