package compose_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestFree_MessageOfEitherPML_IsPending covers memory of the node's PML that a send in the network uses.
func TestFree_MessageOfEitherPML_IsPending(t *testing.T) {
	over := map[string]func(t *testing.T) pmltest.Stack{
		"a network that knows no memory": func(*testing.T) pmltest.Stack { return onNodes(2, mtltest.Options{}) },
		"one that knows it": func(t *testing.T) pmltest.Stack {
			if err := libfabric.Built(); err != nil {
				t.Skip(err)
			}
			testprov.Set(t, "verbs;ofi_rxm", "mr_local")
			s := onNodes(2, mtltest.Options{})
			s.MTL = ofi.Component()
			s.Set = map[string]string{"mtl.ofi.provider_include": "verbs;ofi_rxm", "mtl.ofi.library": testprov.Library(t)}
			return s
		},
	}
	for name, stack := range over {
		t.Run(name, func(t *testing.T) {
			w := pmltest.OpenWorld(t, stack(t), 3) // Ranks 0 and 2 are on one node.
			c := w.Comms(t, cid.PolicyAgree)
			from, ok := framework.As[pml.Allocator](w.Procs[0].Module)
			if !ok {
				t.Fatal("there is no memory")
			}
			for _, peer := range []int{1, 2} {
				memory, err := from.Allocate(1 << 20)
				if err != nil {
					t.Fatal(err)
				}
				copy(memory, bytes.Repeat([]byte{5}, len(memory)))
				s, err := c[0].Isend(pml.Buffer{Bytes: memory, Form: pml.InRegistered}, peer, 1, pml.PointToPoint, pml.Synchronous)
				if err != nil {
					t.Fatal(err)
				}
				gen := s.Generation()
				if err := from.Free(memory); !errors.Is(err, framework.ErrPending) {
					t.Fatalf("free while rank %d is sent a message: %v", peer, err)
				}
				got := make([]byte, len(memory))
				if _, err := c[peer].Recv(t.Context(), pml.Buffer{Bytes: got}, 0, 1, pml.PointToPoint); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Wait(t.Context(), gen); err != nil || !bytes.Equal(got, memory) {
					t.Errorf("it arrives changed, or not: %v", err)
				}
				if err := from.Free(memory); err != nil {
					t.Error(err)
				}
				if err := from.Free(memory); err == nil {
					t.Error("it can be freed twice")
				}
			}
		})
	}
}

// TestAllocate_AddressOfFreedMemory_IsAllocated covers goroutines that allocate and free memory at the same address.
func TestAllocate_AddressOfFreedMemory_IsAllocated(t *testing.T) {
	s := onNodes(1, mtltest.Options{})
	s.BTLs = []btl.Component{self.Component(), shm.Component()}
	w := pmltest.OpenWorld(t, s, 1)
	from, ok := framework.As[pml.Allocator](w.Procs[0].Module)
	if !ok {
		t.Fatal("there is no memory")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				memory, err := from.Allocate(64 << 10)
				if err == nil {
					err = from.Free(memory)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// After a receive from any source, receives from a member on the node are posted in neither PML.
func TestFree_ReceiveBesideWildcards_IsPending(t *testing.T) {
	w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{}), 3) // Ranks 0 and 2 are on one node.
	c := w.Comms(t, cid.PolicyAgree)
	from, ok := framework.As[pml.Allocator](w.Procs[0].Module)
	if !ok {
		t.Fatal("there is no memory")
	}
	user := w.Procs[0].Module.(pml.MemoryUser)
	memory, err := from.Allocate(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []int{pml.AnySource, 2} {
		r := irecv(t, c[0], memory[8:16], source, 1)
		if err := from.Free(memory); !errors.Is(err, framework.ErrPending) || !user.Uses(memory) || user.Uses(memory[16:]) {
			t.Fatalf("free with a receive from %d: %v", source, err)
		}
		send(t, c[2], 0, 1, "12345678")
		if st, err := r.Wait(t.Context(), r.gen); err != nil || st.Source != 2 || string(memory[8:16]) != "12345678" {
			t.Errorf("receive from %d: %+v, %v", source, st, err)
		}
	}
	if user.Uses(memory) {
		t.Error("the memory is in use after the receives")
	}
	if err := from.Free(memory); err != nil {
		t.Error(err)
	}
}
