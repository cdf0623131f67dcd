package ofi_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// gate is a pipe from which a provider reads a byte before it continues.
type gate struct{ r, w *os.File }

func newGate(t testing.TB) *gate {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		r.Close()
	})
	return &gate{r, w}
}

// fault returns the fault of a provider that waits at the gate.
func (g *gate) fault(name string) string { return fmt.Sprintf("%s=%d", name, g.r.Fd()) }

// open lets n calls pass.
func (g *gate) open(t testing.TB, n int) {
	t.Helper()
	if _, err := g.w.Write(make([]byte, n)); err != nil {
		t.Error(err)
	}
}

// mustNotBlock runs calls that must not wait at the gate. If they do, it fails the test and opens the gate.
func (g *gate) mustNotBlock(t testing.TB, calls func()) {
	t.Helper()
	returned, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-returned:
		case <-time.After(20 * time.Second):
			t.Error("a call blocks in the provider with the engine's lock held")
			g.open(t, 100)
		}
	}()
	defer func() {
		close(returned)
		<-watched
	}()
	calls()
}

func unknownPeer(rank int32, blob []byte) framework.Peer {
	return framework.Peer{Incarnation: framework.Incarnation{Nonce: 4711 + uint64(rank)}, Proc: proc("job", rank), Blob: blob}
}

// psm3 connects in the call that inserts an address, other providers with the first message. Operations during such a call
// are queued in order. Those with a peer that is forgotten meanwhile fail.
func TestFirstContact_ProviderBlocks_CallsReturn(t *testing.T) {
	for _, c := range []struct{ provider, when, layout string }{
		{"psm3", "insert", "data"}, {"psm3", "insert", "packed"}, {"psm3", "meet", "packed"},
		{"cxi", "insert", "data"}, {"verbs;ofi_rxm", "meet", "data"}, {"efa", "meet", "packed"}, {"opx", "meet", "data"}, {"tcp;ofi_rxm", "insert", "packed"},
	} {
		t.Run(c.provider+","+c.when+","+c.layout, func(t *testing.T) {
			g := newGate(t)
			g.open(t, 2) // Each process inserts its own address.
			lib := useProfiles(t, c.provider, g.fault(c.when))
			all := members(t, 2, func(p any) {
				withProvider(lib, c.provider)(p)
				ofi.SetLayout(p, c.layout)
			})
			a := all[0].m
			e := mtl.Envelope{CID: 9, Source: 0, Tag: 1}
			gone := newOnceOp()
			var ops []*onceOp
			g.mustNotBlock(t, func() {
				to, err := a.Connect(unknownPeer(5, all[1].m.Blob()))
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					s, r, p := newOnceOp(), newOnceOp(), newOnceOp()
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
				other, err := a.Connect(unknownPeer(6, all[1].m.Blob()))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.Send(&gone.Op, other, e, make([]byte, 8), mtl.Standard); err != nil {
					t.Fatal(err)
				}
				a.Forget(other, framework.ErrProcFailed)
			})
			if ops[0].completions > 0 {
				t.Error("the first message left before the address was inserted")
			}
			g.open(t, 10)
			pollUntilDone(t, all, append(ops, gone)...)
			for i, o := range ops {
				if o.Err != nil {
					t.Errorf("operation %d: %v", i, o.Err)
				}
			}
			if gone.Err == nil {
				t.Error("a send to a forgotten peer has succeeded")
			}
		})
	}
}

// The provider may access the buffers until the endpoint is closed.
func TestFailedEndpoint_SlowClose_EndsReceivesAfterwards(t *testing.T) {
	g := newGate(t)
	lib := useProfiles(t, "cxi", "late=3", g.fault("part"))
	all := members(t, 2, withProvider(lib, "cxi"))
	t.Cleanup(func() { g.open(t, 10) }) // Before the modules close.
	a, b := all[0], all[1]
	r, err := a.receive(b, 1, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	g.mustNotBlock(t, func() {
		for end := time.Now().Add(30 * time.Second); err == nil; {
			if _, err = a.send(b, 2, make([]byte, 8), mtl.Standard); time.Now().After(end) {
				t.Fatal("the provider does not fail")
			}
			a.m.Poll()
			b.m.Poll()
		}
		for range 100 {
			a.m.Poll()
		}
	})
	if r.completions != 0 {
		t.Error("a receive has ended while the provider may write into its buffer")
	}
	g.open(t, 1)
	pollUntilDone(t, all, r)
	if !errors.Is(r.Err, framework.ErrTransport) {
		t.Errorf("the receive: %v", r.Err)
	}
}

// A probe completes while the provider connects to another peer.
func TestProbe_DuringAFirstContact_Ends(t *testing.T) {
	for _, c := range []struct {
		name string
		// b is connected before the receives are posted.
		isGreeted bool
		// The provider has room for 8.
		receives int
	}{
		{"behind a first contact", false, 40},
		{"behind receives", true, 40},
		{"alone", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(t)
			g.open(t, 3) // Each process inserts its own address, and a that of b.
			lib := useProfiles(t, "cxi", "queues=16", "peeks=5", g.fault("insert"))
			all := members(t, 2, withProvider(lib, "cxi"))
			a, b := all[0], all[1]
			if c.isGreeted {
				s, err := a.send(b, 2, make([]byte, 8), mtl.Standard)
				if err != nil {
					t.Fatal(err)
				}
				pollUntilDone(t, all, s)
			}
			var probes []*onceOp
			startProbe := func(claim bool) {
				o := newOnceOp()
				if err := a.m.Probe(&o.Op, a.to(b), mtl.Envelope{CID: 1, Source: 1, Tag: 1}, claim); err != nil {
					t.Fatal(err)
				}
				probes = append(probes, o)
			}
			g.mustNotBlock(t, func() {
				for range c.receives {
					mustPost(t)(a.receive(b, 1, make([]byte, 8)))
					a.m.Poll()
				}
				startProbe(false)
				if _, err := a.m.Connect(unknownPeer(5, b.m.Blob())); err != nil {
					t.Fatal(err)
				}
				for i := range 30 {
					if i%3 == 0 {
						startProbe(i%2 == 0)
					}
					a.m.Poll()
				}
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && slices.ContainsFunc(probes, isOpen); {
					a.m.Poll() // A thread of the provider may hold its lock.
				}
				for i, o := range probes {
					if o.completions != 1 || o.Found || o.Err != nil {
						t.Errorf("probe %d ended %d times: %+v", i, o.completions, o.Result)
					}
				}
			})
			g.open(t, 1)
		})
	}
}

func isOpen(o *onceOp) bool { return o.completions == 0 }
