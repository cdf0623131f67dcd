package ofi_test

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// TestProviderThatConnectsSlowlyKeepsNobodyWaiting: psm3 connects within the call that makes
// a peer known. Calls return meanwhile, and what was asked of the peer happens later, in
// its order; one that is forgotten before is nobody's.
func TestProviderThatConnectsSlowlyKeepsNobodyWaiting(t *testing.T) {
	const slow = 700 * time.Millisecond
	for _, layout := range []string{"data", "packed"} {
		t.Run(layout, func(t *testing.T) {
			lib := profiles(t, "psm3", "slow=700")
			all := members(t, 2, func(p any) {
				using(lib, "psm3")(p)
				ofi.SetLayout(p, layout)
			})
			a := all[0].m
			began := time.Now()
			to, err := a.Connect(framework.Peer{Life: framework.Life{Nonce: 4711}, Proc: framework.Proc{Namespace: "job", Rank: 5}, Blob: all[1].m.Blob()})
			if err != nil {
				t.Fatal(err)
			}
			e := mtl.Envelope{CID: 9, Source: 0, Tag: 1}
			var ops []*once
			for range 3 {
				s, r, p := newOnce(), newOnce(), newOnce()
				if _, err := a.Send(&s.Op, to, e, make([]byte, 8), mtl.Standard); err != nil {
					t.Fatal(err)
				}
				if err := a.Recv(&r.Op, to, mtl.Envelope{CID: 9, Source: 5, Tag: 1}, make([]byte, 8)); err != nil {
					t.Fatal(err)
				}
				if err := a.Probe(&p.Op, to, e, false); err != nil {
					t.Fatal(err)
				}
				a.Poll()
				a.Cancel(&r.Op)
				ops = append(ops, s, r, p)
			}
			if d := time.Since(began); d > slow {
				t.Errorf("calls took %v, and connecting %v", d, slow)
			}
			gone := newOnce()
			other, err := a.Connect(framework.Peer{Life: framework.Life{Nonce: 4712}, Proc: framework.Proc{Namespace: "job", Rank: 6}, Blob: all[1].m.Blob()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Send(&gone.Op, other, e, make([]byte, 8), mtl.Standard); err != nil {
				t.Fatal(err)
			}
			a.Forget(other, framework.ErrProcFailed)
			ops = append(ops, gone)
			for end := time.Now().Add(20 * time.Second); ; {
				left := 0
				for _, o := range ops {
					if o.ends == 0 {
						left++
					}
				}
				if left == 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%d of %d operations have not ended", left, len(ops))
				}
				a.Poll()
				all[1].m.Poll()
			}
			for i, o := range ops[:len(ops)-1] {
				if o.Err != nil {
					t.Errorf("operation %d: %v", i, o.Err)
				}
			}
			if gone.Err == nil {
				t.Error("a send to the forgotten has succeeded")
			}
		})
	}
}
