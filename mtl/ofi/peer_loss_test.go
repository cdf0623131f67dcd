package ofi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// openPair returns two modules over a provider, with endpoints for each other. wait is their connect_timeout.
func openPair(t *testing.T, provider string, wait time.Duration) (a, b *faultRig) {
	t.Helper()
	var rigs [2]*faultRig
	for i := range rigs {
		m, err := open(t, func(p any) {
			ofi.Set(p, []string{provider}, "auto", "poll")
			ofi.SetConnect(p, wait)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		rigs[i] = &faultRig{t: t, m: m}
	}
	for i, r := range rigs {
		other := uint32(1 - i)
		var err error
		r.self, err = r.m.Connect(framework.Peer{Incarnation: framework.Incarnation{ID: framework.MakeProcID(0, other), Nonce: 100 + uint64(other)}, Proc: framework.Proc{Namespace: "job", Rank: other}, Blob: rigs[other].m.Blob()})
		if err != nil {
			t.Fatal(err)
		}
	}
	return rigs[0], rigs[1]
}

// send sends n bytes, and returns nil if they are on their way already.
func (r *faultRig) send(n int, tag int32) *onceOp {
	r.t.Helper()
	o := newOnceOp()
	done, err := r.m.Send(&o.Op, r.self, mtl.Envelope{CID: 1, Source: 0, Tag: tag}, make([]byte, n), mtl.Standard)
	if err != nil {
		r.t.Fatal(err)
	}
	if done {
		return nil
	}
	return o
}

// A provider that connects with the first message reports for ever that it has no space. The process must be able to
// close afterwards.
func TestSend_PeerHasLeft_Fails(t *testing.T) {
	needLibfabric(t)
	a, b := openPair(t, "tcp;ofi_rxm", 200*time.Millisecond)
	b.m.Close()
	ops := []*onceOp{a.send(8, 1), a.send(1<<20, 2)}
	if ops[0] == nil || ops[1] == nil {
		t.Fatal("a message is in flight to a closed peer")
	}
	a.until(ops...)
	for _, o := range ops {
		if !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), "rank 1") || !strings.Contains(o.Err.Error(), "rank 0: nothing took a message there") || !strings.Contains(o.Err.Error(), "connect_timeout") {
			t.Errorf("%v", o.Err)
		}
	}
	if !a.m.Idle() {
		t.Error("it is not idle")
	}
}

// The peer is connected and idle for longer than connect_timeout. Then all messages arrive in order.
func TestSend_SlowPeer_Waits(t *testing.T) {
	needLibfabric(t)
	const n, size, wait = 4000, 8 << 10, 200 * time.Millisecond
	a, b := openPair(t, "tcp;ofi_rxm", wait)
	receive := func(tag int32) *onceOp {
		o := newOnceOp()
		if err := b.m.Recv(&o.Op, b.self, mtl.Envelope{CID: 1, Source: 0, Tag: tag}, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		return o
	}
	first, send := receive(n), a.send(8, n)
	both := func(o *onceOp) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); o.completions == 0; {
			a.m.Poll()
			if b.m.Poll(); time.Now().After(end) {
				t.Fatal("a receive does not end")
			}
		}
	}
	both(first)
	var sends []*onceOp
	for i := range n {
		if o := a.send(size, int32(i)); o != nil {
			sends = append(sends, o)
		}
	}
	for end := time.Now().Add(10 * wait); time.Now().Before(end); {
		a.m.Poll()
	}
	if a.m.Idle() || len(sends) < n/2 {
		t.Fatalf("%d sends wait: the network takes them all", len(sends))
	}
	for i := range n {
		o := receive(int32(i))
		both(o)
		if o.Err != nil || o.Tag != int32(i) || o.Bytes != size {
			t.Fatalf("message %d: %+v", i, o.Result)
		}
	}
	if send != nil {
		sends = append(sends, send)
	}
	for _, o := range sends {
		if a.until(o); o.Err != nil {
			t.Fatal(o.Err)
		}
	}
}
