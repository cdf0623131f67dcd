package cm_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl/ucx"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// overUCX returns cm over a class of UCX's transports. nodes is as in onNodes, and 0 means without shared memory.
func overUCX(t *testing.T, class string, nodes int) pmltest.Stack {
	t.Helper()
	ucp.Setenv("UCX_ERROR_SIGNALS", "")
	if _, err := ucp.Load("libucp.so.0"); err != nil {
		needs.Missing(t, "install libucx0: %v", err)
	}
	s := pmltest.Stack{PML: cm.Component(), MTL: ucx.Component(), Set: map[string]string{"mtl.ucx.provider_include": class}}
	if nodes > 0 {
		s.Node, s.BTLs, s.Nodes = ob1.Component(), []btl.Component{self.Component(), shm.OnHeap()}, nodes
	}
	return s
}

// TestContract_OverUCX uses the policy with the most control messages. With -seeds, it uses all policies.
func TestContract_OverUCX(t *testing.T) {
	needs.Time(t)
	policies := pmltest.Policies
	if *seeds == 0 {
		policies = []cid.Policy{cid.PolicyLazy}
	}
	for _, class := range []string{"shm", "tcp"} {
		t.Run(class, func(t *testing.T) { pmltest.Run(t, overUCX(t, class, 0), policies...) })
	}
}

// TestMetamorphic_OverUCX has fewer seeds than TestMetamorphic.
func TestMetamorphic_OverUCX(t *testing.T) {
	var all []pmltest.Variant
	for i, class := range []string{"shm", "tcp", "tcp"} {
		all = append(all, pmltest.Variant{
			Name: fmt.Sprint(class, ", nodes with shared memory: ", i), Policy: pmltest.Policies[i], Stack: overUCX(t, class, i),
		})
	}
	n := max(*seeds, 2)
	for s := *seed; s < *seed+n; s++ {
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			if err := pmltest.Metamorphic(t.Context(), s, all); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFragments_OneBufferOverUCX_Complete covers several RTS that arrive before the first is read, as
// in loops that measure bandwidth.
func TestFragments_OneBufferOverUCX_Complete(t *testing.T) {
	for _, class := range []string{"shm", "tcp"} {
		t.Run(class, func(t *testing.T) {
			c := pmltest.OpenWorld(t, overUCX(t, class, 0), 2).Comms(t, cid.PolicyLazy)
			const n = 32
			buf := make([]byte, 1<<20+n)
			var all []started
			for i := range n {
				all = append(all, start(t)(c[0].Irecv(pml.Buffer{Bytes: buf}, 1, 3, pml.PointToPoint)))
				all = append(all, start(t)(c[1].Isend(pml.Buffer{Bytes: make([]byte, 1<<20+1+i)}, 0, 3, pml.PointToPoint, pml.Standard)))
			}
			for i, r := range all {
				if st, err := r.wait(t); err != nil || i%2 == 0 && st.Bytes != 1<<20+1+i/2 {
					t.Fatalf("%d: %+v, %v", i, st, err)
				}
			}
		})
	}
}

// TestSavedPrefix_RequestIsReused_IsNotMistakenForMessage reuses requests and slots in any order for claimed messages of
// rtsSize bytes. An earlier saved prefix must not be used.
func TestSavedPrefix_RequestIsReused_IsNotMistakenForMessage(t *testing.T) {
	c := pmltest.OpenWorld(t, overUCX(t, "shm", 0), 2).Comms(t, cid.PolicyLazy)
	for round := range 24 {
		n := 2 + round%3
		var receives, sends []started
		for tag := range n {
			receives = append(receives, start(t)(c[0].Irecv(pml.Buffer{Bytes: make([]byte, 1<<20+1)}, 1, tag, pml.PointToPoint)))
		}
		for i := range n {
			tag := (i + round) % n // In another order.
			if round%2 == 1 {
				tag = n - 1 - tag
			}
			sends = append(sends, start(t)(c[1].Isend(pml.Buffer{Bytes: make([]byte, 1<<20+1)}, 0, tag, pml.PointToPoint, pml.Standard)))
		}
		for i := range n {
			if _, err := receives[(i+round/2)%n].wait(t); err != nil {
				t.Fatal(err)
			}
		}
		for k := range n {
			sends = append(sends, start(t)(c[1].Isend(pml.Buffer{Bytes: numbers(cm.RTSSize)}, 0, k, pml.PointToPoint, pml.Standard)))
		}
		got := make([]byte, 100)
		for k := range n {
			claimed, st, err := c[0].Mprobe(t.Context(), 1, k, pml.PointToPoint)
			if err == nil {
				st, err = start(t)(claimed.Irecv(pml.Buffer{Bytes: got})).wait(t)
			}
			if err != nil || st.Bytes != cm.RTSSize || !bytes.Equal(got[:cm.RTSSize], numbers(cm.RTSSize)) {
				t.Fatalf("round %d: %+v, %v", round, st, err)
			}
		}
		for _, s := range sends {
			if _, err := s.wait(t); err != nil {
				t.Fatal(err)
			}
		}
	}
}
