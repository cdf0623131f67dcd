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

// two returns two modules over a provider, and each one's endpoint for the other;
// a waits for so long for b to take something.
func two(t *testing.T, provider string, wait time.Duration) (a, b *rig) {
	t.Helper()
	var rigs [2]*rig
	for i := range rigs {
		m, err := open(t, func(p any) {
			ofi.Set(p, []string{provider}, "auto", "poll")
			ofi.SetConnect(p, wait)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		rigs[i] = &rig{t: t, m: m}
	}
	for i, r := range rigs {
		other := uint32(1 - i)
		var err error
		r.self, err = r.m.Connect(framework.Peer{Life: framework.Life{ID: framework.MakeProcID(0, other), Nonce: 100 + uint64(other)}, Proc: framework.Proc{Namespace: "job", Rank: other}, Blob: rigs[other].m.Blob()})
		if err != nil {
			t.Fatal(err)
		}
	}
	return rigs[0], rigs[1]
}

// send sends n bytes, and returns nil if they are on their way already.
func (r *rig) send(n int, tag int32) *once {
	r.t.Helper()
	o := newOnce()
	done, err := r.m.Send(&o.Op, r.self, mtl.Envelope{CID: 1, Source: 0, Tag: tag}, make([]byte, n), mtl.Standard)
	if err != nil {
		r.t.Fatal(err)
	}
	if done {
		return nil
	}
	return o
}

// TestSendToWhoHasLeftEnds: a provider that connects when the first message goes
// there says for ever that there is no room. The process may then close at once.
func TestSendToWhoHasLeftEnds(t *testing.T) {
	needLibfabric(t)
	a, b := two(t, "tcp;ofi_rxm", 200*time.Millisecond)
	b.m.Close()
	ops := []*once{a.send(8, 1), a.send(1<<20, 2)}
	if ops[0] == nil || ops[1] == nil {
		t.Fatal("a message is on its way to nobody")
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

// TestPeerThatIsSlowIsWaitedFor: it is connected, and does nothing for longer than
// nobody is waited for; then everything arrives, in order.
func TestPeerThatIsSlowIsWaitedFor(t *testing.T) {
	needLibfabric(t)
	const n, size, wait = 4000, 8 << 10, 200 * time.Millisecond
	a, b := two(t, "tcp;ofi_rxm", wait)
	receive := func(tag int32) *once {
		o := newOnce()
		if err := b.m.Recv(&o.Op, b.self, mtl.Envelope{CID: 1, Source: 0, Tag: tag}, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		return o
	}
	first, send := receive(n), a.send(8, n)
	both := func(o *once) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); o.ends == 0; {
			a.m.Poll()
			if b.m.Poll(); time.Now().After(end) {
				t.Fatal("a receive does not end")
			}
		}
	}
	both(first)
	var sends []*once
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
