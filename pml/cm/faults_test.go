package cm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// These tests cover the faults of Open MPI's cm and OFI MTL that concern communicator ids, with
// the numbers of facts/openmpi.md.

func text(s string) pml.Buffer { return pml.Buffer{Bytes: []byte(s)} }

// receive receives a message and compares its contents.
func receive(t *testing.T, c pml.Comm, src, tag int, want string) {
	t.Helper()
	buf := make([]byte, len(want)+1)
	st, err := c.Recv(t.Context(), pml.Buffer{Bytes: buf}, src, tag, pml.PointToPoint)
	if err != nil || string(buf[:min(st.Bytes, len(buf))]) != want {
		t.Errorf("received %q: %+v %v, want %q", buf, st, err, want)
	}
}

func send(t *testing.T, c pml.Comm, dst, tag int, s string) {
	t.Helper()
	if err := c.Send(t.Context(), text(s), dst, tag, pml.PointToPoint, pml.Standard); err != nil {
		t.Error(err)
	}
}

// In Open MPI, Isend waits for the exchange of ids, and so for the peer.
func TestFault1_PeerDoesNotPoll_IsendReturns(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	c := w.Comms(t, cid.PolicyLazy)
	w.Procs[1].Engine.Lock() // Rank 1 makes no progress.
	const n = 1000
	reqs := make([]*pml.Request, n)
	gens := make([]uint32, n)
	for i := range reqs {
		var err error
		if reqs[i], err = c[0].Isend(text(fmt.Sprint("message ", i)), 1, i%3, pml.PointToPoint, pml.Standard); err != nil {
			t.Fatal(err)
		}
		gens[i] = reqs[i].Generation()
	}
	if got := len(pmltest.Inspect(w.Procs[0].Module).Comms[0].Sends); got != n {
		t.Errorf("%d sends wait, want %d", got, n)
	}
	w.Procs[1].Engine.Unlock()
	for i := range reqs {
		receive(t, c[1], 0, pml.AnyTag, fmt.Sprint("message ", i))
	}
	for i, r := range reqs {
		if st, err := r.Wait(t.Context(), gens[i]); err != nil {
			t.Errorf("send %d: %+v %v", i, st, err)
		}
	}
}

// join creates the handle of one rank of a lazy communicator of all.
func join(t *testing.T, w *pmltest.World, id cid.Extended, rank int) pml.Comm {
	t.Helper()
	m := w.Procs[rank].Module
	local, err := m.CIDs().Reserve()
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.AddComm(pml.CommSpec{ID: id, Local: local, Members: pml.NewMembers(w.Group()), Rank: rank})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Open MPI looks up an unknown id among its own, so that the message reaches the wrong
// communicator.
func TestFault2_UnknownCommunicator_SendWaits(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	other := w.Comms(t, cid.PolicyLazy) // Uses the index here that the sender has for the next communicator.
	second := join(t, w, w.NextID(), 1)
	id := w.NextID()
	if _, err := join(t, w, id, 0).Isend(text("early"), 1, 5, pml.PointToPoint, pml.Standard); err != nil {
		t.Fatal(err)
	}
	for pmltest.Inspect(w.Procs[1].Module).EarlyArrivals == 0 { // The request precedes the communicator.
		runtime.Gosched()
	}
	for _, c := range []pml.Comm{other[1], second} {
		if st, ok, err := c.Iprobe(pml.AnySource, pml.AnyTag, pml.PointToPoint); ok || err != nil {
			t.Errorf("another communicator has a message: %+v %v", st, err)
		}
	}
	receive(t, join(t, w, id, 1), 0, 5, "early")
}

// Open MPI loses the buffer for control messages on this path, so that a process receives no
// more of them after a few.
func TestFault3_ControlForUnknownCommunicators_LaterOnesAreReceived(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	for round := range 200 {
		id := w.NextID()
		first := join(t, w, id, 0)
		r, err := first.Isend(text("early"), 1, 1, pml.PointToPoint, pml.Standard)
		if err != nil {
			t.Fatal(err)
		}
		gen := r.Generation()
		for pmltest.Inspect(w.Procs[1].Module).EarlyArrivals == 0 {
			runtime.Gosched()
		}
		second := join(t, w, id, 1)
		receive(t, second, pml.AnySource, 1, "early")
		if _, err := r.Wait(t.Context(), gen); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		first.Close()
		second.Close()
	}
}

// In Open MPI, the id has 16 bits on the wire and 30 in the tag.
func TestFault4_IndexAbove16Bits_MessagesMatch(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{CIDBits: 32}), 2)
	for _, p := range w.Procs { // Indices above 16 bits, which differ between the processes.
		for i := range 1<<17 + 1000*p.Rank {
			if _, err := p.Module.CIDs().Reserve(); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	c := w.Comms(t, cid.PolicyLazy)
	go send(t, c[0], 1, 1, "there")
	receive(t, c[1], 0, 1, "there")
	go send(t, c[1], 0, 1, "and back")
	receive(t, c[0], 1, 1, "and back")
}

// In Open MPI, concurrent senders race on the state of an exchange.
func TestFault5_ConcurrentFirstSends_AllArrive(t *testing.T) {
	for range 20 {
		w := pmltest.OpenWorld(t, stack(mtltest.Options{Faults: mtltest.Faults{Polls: 1}}), 2)
		c := w.Comms(t, cid.PolicyLazy)
		const many, each = 8, 20
		var wg sync.WaitGroup
		for rank := range 2 {
			for g := range many {
				wg.Go(func() {
					for i := range each {
						send(t, c[rank], 1-rank, g, fmt.Sprint(g, " ", i))
					}
				})
				wg.Go(func() {
					for i := range each {
						receive(t, c[rank], 1-rank, g, fmt.Sprint(g, " ", i))
					}
				})
			}
		}
		wg.Wait()
	}
}

// Open MPI does not withdraw control receives when a process ends, and runs callbacks
// late.
func TestFault6_CloseWithPendingOperations_Ends(t *testing.T) {
	w, err := pmltest.NewWorld(stack(mtltest.Options{}), 2)
	if err != nil {
		t.Fatal(err)
	}
	c := w.Comms(t, cid.PolicyLazy)
	known := w.Comms(t, cid.PolicyAgree)
	w.Procs[1].Engine.Lock()
	var waits []func() error
	start := func(r *pml.Request, err error) {
		if err != nil {
			t.Fatal(err)
		}
		gen := r.Generation()
		waits = append(waits, func() error { _, err := r.Wait(context.Background(), gen); return err })
	}
	start(c[0].Isend(text("asks"), 1, 1, pml.PointToPoint, pml.Standard))
	start(known[0].Isend(text("synchronous"), 1, 1, pml.PointToPoint, pml.Synchronous))
	start(known[0].Irecv(text("receives"), pml.AnySource, 1, pml.PointToPoint))
	w.Procs[1].Engine.Unlock()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for i, wait := range waits {
		if err := wait(); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("operation %d: %v, want ErrClosed", i, err)
		}
	}
}

// Open MPI sends a message that waited for the id with a tag that contains parts of the
// control message.
func TestFault7_HeldMessages_KeepEnvelope(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 3)
	c := w.Comms(t, cid.PolicyLazy)
	tags := []int{0, 77, 1<<24 - 1, 3}
	for _, from := range []int{0, 1} {
		for i, tag := range tags {
			if _, err := c[from].Isend(text(fmt.Sprint(from, i)), 2, tag, pml.Plane(i%pml.Planes), pml.Standard); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, tag := range tags {
		for range 2 {
			buf := make([]byte, 8)
			st, err := c[2].Recv(t.Context(), pml.Buffer{Bytes: buf}, pml.AnySource, tag, pml.Plane(i%pml.Planes))
			if err != nil || st.Tag != tag || string(buf[:st.Bytes]) != fmt.Sprint(st.Source, i) {
				t.Errorf("%+v %v %q", st, err, buf)
			}
		}
	}
}

// In Open MPI, an error of the network ends the process.
func TestFault8_NetworkError_IsReturned(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	c := w.Comms(t, cid.PolicyAgree)
	broken := errors.New("cable is cut")
	net.SetFaults(mtltest.Faults{Send: broken})
	if err := c[0].Send(t.Context(), text("x"), 1, 1, pml.PointToPoint, pml.Standard); !errors.Is(err, broken) || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("send: %v", err)
	}
	net.SetFaults(mtltest.Faults{})
	send(t, c[0], 1, 1, "goes on")
	receive(t, c[1], 0, 1, "goes on")
}

// Opening a module is local, and so is everything else before the first message (fault 9).
// Derived communicators cost no message either (fault 10).
func TestFault9And10_BeforeFirstMessage_NetworkIsIdle(t *testing.T) {
	var controls atomic.Int64
	net := mtltest.NewMemory(mtltest.Options{Faults: mtltest.Faults{Control: func(data []byte) [][]byte {
		controls.Add(1)
		return [][]byte{data}
	}}})
	w := pmltest.OpenWorld(t, over(net), 2)
	for _, policy := range pmltest.Policies {
		for range 10 {
			for _, c := range w.Comms(t, policy) {
				c.Close()
			}
		}
		if n := controls.Load(); n != 0 {
			t.Errorf("%v: %d control messages for communicators on which nothing was sent", policy, n)
		}
	}
	for _, policy := range []cid.Policy{cid.PolicyAgree, cid.PolicyGather} {
		c := w.Comms(t, policy)
		for rank := range 2 {
			go send(t, c[rank], 1-rank, 1, "hello")
		}
		for rank := range 2 {
			receive(t, c[rank], pml.AnySource, 1, "hello")
		}
		if n := controls.Load(); n != 0 {
			t.Errorf("%v: %d control messages, and all ids are known", policy, n)
		}
	}
}

// A component that has failed to open can be opened again.
func TestFault13_OpenFailed_SecondOpenSucceeds(t *testing.T) {
	narrow := mtltest.NewMemory(mtltest.Options{ControlLimit: 1})
	if _, err := pmltest.NewWorld(over(narrow), 1); !errors.Is(err, framework.ErrUnsupported) {
		t.Fatalf("a network without room for control messages: %v", err)
	}
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 1)
	c := w.Comms(t, cid.PolicyAgree)
	go send(t, c[0], 0, 1, "now")
	receive(t, c[0], 0, 1, "now")
}

// Control messages are reordered and duplicated, and unknown peers send arbitrary ones. All
// messages still arrive, once and in order.
func TestControl_ReorderedDuplicatedForged_MessagesArriveOnce(t *testing.T) {
	var mu sync.Mutex
	var kept [][]byte
	n := 0
	net := mtltest.NewMemory(mtltest.Options{Inject: 4096})
	net.SetFaults(mtltest.Faults{Control: func(data []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		n++
		forged := bytes.Clone(data)
		forged[9]++ // The nonce of another receiver.
		out := [][]byte{forged, data[:len(data)-1], data}
		if n%3 == 0 {
			out = append(out, data)
		}
		if n%5 == 0 { // A late message of an earlier communicator, perhaps to another process.
			out = append(out, kept...)
			kept = nil
		} else {
			kept = append(kept, bytes.Clone(data))
		}
		return out
	}})
	w := pmltest.OpenWorld(t, over(net), 3)
	for round := range 30 {
		c := w.Comms(t, cid.PolicyLazy)
		err := pmltest.Each(c, func(rank int, c pml.Comm) error {
			var wg sync.WaitGroup
			for to := range 3 {
				wg.Go(func() {
					for i := range 3 {
						send(t, c, to, i, fmt.Sprint(round, rank, i))
					}
				})
			}
			for from := range 3 {
				for i := range 3 {
					receive(t, c, from, i, fmt.Sprint(round, from, i))
				}
			}
			wg.Wait()
			c.Close()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSend_FortyThousandCommunicators_ReachesTheLast sends on the last of 40,000 communicators.
func TestSend_FortyThousandCommunicators_ReachesTheLast(t *testing.T) {
	if underRace {
		t.Skip("the race detector makes it long, and there is one goroutine")
	}
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	const many = 40000
	all := make([][]pml.Comm, many)
	for i := range all {
		all[i] = w.Comms(t, pmltest.Policies[i%len(pmltest.Policies)])
	}
	for _, i := range []int{many - 1, many - 2, many - 3, 0, 1, 2} {
		s := fmt.Sprint("communicator ", i)
		go send(t, all[i][0], 1, 1, s)
		receive(t, all[i][1], pml.AnySource, pml.AnyTag, s)
	}
	for _, c := range slices.Concat(all...) {
		c.Close()
	}
}

// TestAddComm_LayoutIsFull_ReturnsUnsupported uses a network that matches few bits.
func TestAddComm_LayoutIsFull_ReturnsUnsupported(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{CIDBits: 8, TagBits: 10, SourceBits: 1, MaxMessage: 1000}), 2)
	if got := w.Procs[0].Module.Caps().TagMax; got != 1023 {
		t.Errorf("TagMax is %d", got)
	}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = w.Comm(cid.PolicyLazy)
	}
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "close communicators") || n != 65 {
		t.Errorf("communicator %d of 64: %v", n, err)
	}
	w = pmltest.OpenWorld(t, stack(mtltest.Options{SourceBits: 1}), 3)
	if _, err := w.Comm(cid.PolicyAgree); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("three members, and one bit for a rank: %v", err)
	}
	if _, err := pmltest.NewWorld(stack(mtltest.Options{MaxMessage: 60}), 1); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "60 bytes") {
		t.Errorf("a network of 60 bytes: %v", err)
	}
	if _, err := pmltest.NewWorld(stack(mtltest.Options{CIDBits: 4}), 1); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("4 bits for an id: %v", err)
	}
}

// TestClose_ManyCommunicators_IndicesAreReused checks that closed communicators release their ids even if messages to
// them are late, and that no message reaches a newer communicator.
func TestClose_ManyCommunicators_IndicesAreReused(t *testing.T) {
	for _, policy := range pmltest.Policies {
		t.Run(policy.String(), func(t *testing.T) {
			w := pmltest.OpenWorld(t, stack(mtltest.Options{CIDBits: 9, Inject: 4096, Faults: mtltest.Faults{Polls: 2}}), 2)
			for round := range 2000 { // There are 128 indices.
				c := w.Comms(t, policy)
				stray := round%3 == 0
				done := make(chan struct{})
				go func() {
					defer close(done)
					send(t, c[0], 1, 1, fmt.Sprint("round ", round))
					if stray {
						send(t, c[0], 1, 2, "never received")
					}
					c[0].Close()
				}()
				receive(t, c[1], 0, pml.AnyTag, fmt.Sprint("round ", round))
				c[1].Close()
				<-done
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
				for _, p := range w.Procs {
					for {
						if _, _, quarantined := p.Module.CIDs().Counts(); quarantined < 40 { // At most 32 of them are quiet.
							break
						}
						runtime.Gosched()
					}
				}
			}
		})
	}
}

// TestSend_ReceiverHasClosed_IsDropped covers a receiver that has released the
// communicator before the sender requests its id. The send is dropped. It completes, or fails
// if it is synchronous.
func TestSend_ReceiverHasClosed_IsDropped(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	for _, mode := range []pml.Mode{pml.Standard, pml.Synchronous} {
		c := w.Comms(t, cid.PolicyLazy)
		c[1].Close()
		for i := range 3 {
			var want error
			if mode == pml.Synchronous {
				want = framework.ErrCommClosed
			}
			if err := c[0].Send(t.Context(), text("never received"), 1, i, pml.PointToPoint, mode); !errors.Is(err, want) {
				t.Errorf("mode %d: %v, want %v", mode, err, want)
			}
		}
		c[0].Close()
	}
	if n := w.Procs[0].Module.Stats()[0].Dropped; n != 6 {
		t.Errorf("%d are counted as dropped, want 6", n)
	}
}
