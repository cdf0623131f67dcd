package compose_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestRecvAnySource_NodeAndNetwork_LoseNoMessage lets one sender on the node and one on another node race for the same receives,
// some of which are canceled. Every message is received once, and the messages of each sender are received in the order of
// their sends by receives in the order of their posting.
func TestRecvAnySource_NodeAndNetwork_LoseNoMessage(t *testing.T) {
	for _, polls := range []int{0, 3} {
		for _, policy := range pmltest.Policies {
			anySource(t, onNodes(2, mtltest.Options{Inject: 4096, Faults: mtltest.Faults{Polls: polls}}), policy)
		}
	}
}

// TestClose_WithdrawalsInProgress_ReceivesEnd covers many receives that are being withdrawn from the network for messages of
// the node. The withdrawals complete after the close.
func TestClose_WithdrawalsInProgress_ReceivesEnd(t *testing.T) {
	for round := range 4 {
		w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{Faults: mtltest.Faults{Polls: 20 << round}}), 3)
		for range 60 {
			c := w.Comms(t, cid.PolicyAgree)
			irecv(t, c[0], make([]byte, 100), pml.AnySource, 3)
			send(t, c[2], 0, 3, "of the node")
		}
		var over atomic.Bool
		var poller sync.WaitGroup
		poller.Go(func() { // As a goroutine does that waits for another message.
			for e := w.Procs[0].Engine; !over.Load(); {
				e.Lock()
				e.Progress()
				e.Unlock()
			}
		})
		if err := w.Procs[0].Module.Close(); err != nil {
			t.Error(err)
		}
		over.Store(true)
		poller.Wait()
	}
}

func anySource(t *testing.T, s pmltest.Stack, policy cid.Policy) {
	const n, batch = 400, 8
	w := pmltest.OpenWorld(t, s, 3)
	c := w.Comms(t, policy)
	var senders sync.WaitGroup
	for from := 1; from <= 2; from++ { // Rank 1 is on another node, and rank 2 on the node of rank 0.
		senders.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(from)))
			for i := range n {
				b := make([]byte, 4+rng.IntN(40))
				if rng.IntN(50) == 0 {
					b = make([]byte, 20000)
				}
				binary.LittleEndian.PutUint32(b, uint32(i))
				if err := c[from].Send(t.Context(), pml.Buffer{Bytes: b}, 0, i%3, pml.PointToPoint, pml.Mode(i%5/4)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(2, 0))
	var next [3]int // Next number of each sender.
	type posted struct {
		r   *pml.Request
		gen uint32
		buf []byte
	}
	for next[1]+next[2] < 2*n {
		var all []posted
		for range min(batch, 2*n-next[1]-next[2]) {
			src := pml.AnySource
			if k := rng.IntN(8); (k == 1 || k == 2) && n-next[k] >= 2*batch {
				src = k
			}
			buf := make([]byte, 20000)
			r, err := c[0].Irecv(pml.Buffer{Bytes: buf}, src, pml.AnyTag, pml.PointToPoint)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, posted{r, r.Generation(), buf})
		}
		if rng.IntN(3) == 0 {
			p := all[rng.IntN(len(all))]
			if err := p.r.Cancel(p.gen); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range all {
			st, err := p.r.Wait(t.Context(), p.gen)
			if err != nil {
				t.Fatalf("receive %d: %+v %v", i, st, err)
			}
			if st.Canceled {
				continue
			}
			if got := int(binary.LittleEndian.Uint32(p.buf)); got != next[st.Source] || st.Tag != got%3 {
				t.Fatalf("receive %d got message %d of rank %d with tag %d, want %d", i, got, st.Source, st.Tag, next[st.Source])
			}
			next[st.Source]++
		}
	}
	if st, ok, err := c[0].Iprobe(pml.AnySource, pml.AnyTag, pml.PointToPoint); ok || err != nil {
		t.Errorf("there is one more: %+v %v", st, err)
	}
	senders.Wait() // The last synchronous sends complete now.
}

// TestSend_ContextEndsOnWatchedPlane_IsWithdrawn covers a message that was passed to the watcher and has not matched.
func TestSend_ContextEndsOnWatchedPlane_IsWithdrawn(t *testing.T) {
	w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{}), 3)
	c := w.Comms(t, cid.PolicyAgree)
	first := irecv(t, c[0], make([]byte, 8), pml.AnySource, 1) // Starts the watch of the plane.
	send(t, c[2], 0, 1, "first")
	if _, err := first.Wait(t.Context(), first.gen); err != nil {
		t.Fatal(err)
	}
	reason := errors.New("enough")
	for _, n := range []int{8, 100000} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var sender sync.WaitGroup
		sender.Go(func() {
			err := c[2].Send(ctx, pml.Buffer{Bytes: make([]byte, n)}, 0, 2, pml.PointToPoint, pml.Synchronous)
			if _, isPending := errors.AsType[*pml.PendingError](err); isPending || !errors.Is(err, reason) {
				t.Errorf("%d bytes: %v, want a send that is withdrawn", n, err)
			}
		})
		until(t, func() bool { _, ok, err := c[0].Iprobe(2, 2, pml.PointToPoint); return ok || err != nil })
		cancel(reason)
		sender.Wait()
		if _, ok, err := c[0].Iprobe(2, 2, pml.PointToPoint); ok || err != nil {
			t.Errorf("%d bytes: the message is here still, %v", n, err)
		}
	}
	send(t, c[2], 0, 2, "next")
	buf := make([]byte, 8)
	if st, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: buf}, pml.AnySource, 2, pml.PointToPoint); err != nil || string(buf[:st.Bytes]) != "next" {
		t.Errorf("received %q: %+v, %v", buf, st, err)
	}
}
