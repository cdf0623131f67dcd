package cm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// partOptions are those of a network with a message limit below the length of most messages.
var partOptions = mtltest.Options{MaxMessage: 1000, Inject: 1000}

// TestContract_Fragments omits the case that takes five seconds over any network. With -seeds, it
// runs all cases, and a network that delivers late.
func TestContract_Fragments(t *testing.T) {
	if *seeds == 0 {
		all := pmltest.Cases(stack(partOptions), cid.PolicyLazy)
		all = slices.DeleteFunc(all, func(c kittest.Case) bool { return c.Name == "ReceiveFromAnySource_AllOthersLeft_Ends" })
		all.Run(t)
		return
	}
	late := partOptions
	late.Faults = mtltest.Faults{Polls: 5}
	pmltest.Run(t, stack(partOptions), pmltest.Policies...)
	pmltest.Run(t, stack(late), cid.PolicyLazy)
}

// numbers returns a message of n bytes.
func numbers(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}

// TestRecv_FragmentedMessage_IsTruncated covers buffers of any length, including those shorter than an
// RTS. The buffer has the beginning of the message, and the error has its full length.
func TestRecv_FragmentedMessage_IsTruncated(t *testing.T) {
	c := pmltest.OpenWorld(t, stack(partOptions), 2).Comms(t, cid.PolicyAgree)
	for _, n := range []int{1001, 5000, cm.RTSSize} {
		for _, room := range []int{0, 1, cm.RTSSize - 1, cm.RTSSize, cm.RTSSize + 1, 999, 1000, 1001, 2000, 5000, 6000} {
			b := numbers(n)
			s := start(t)(c[1].Isend(pml.Buffer{Bytes: b}, 0, 3, pml.PointToPoint, pml.Synchronous))
			got := make([]byte, 7000)
			st, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: got[:room]}, pml.AnySource, pml.AnyTag, pml.PointToPoint)
			if room < n {
				wantErr(t, fmt.Sprintf("%d into %d", n, room), err, framework.ErrTruncate)
			} else if err != nil {
				t.Fatal(err)
			}
			if st.Bytes != n || st.Source != 1 || st.Tag != 3 {
				t.Errorf("%d into %d: %+v", n, room, st)
			}
			if k := min(n, room); !bytes.Equal(got[:k], b[:k]) || !bytes.Equal(got[k:], make([]byte, len(got)-k)) {
				t.Errorf("%d into %d: the buffer is wrong", n, room)
			}
			if _, err := s.wait(t); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestProbe_FragmentedMessage_ReturnsItsLength also checks that probes keep the order of messages.
func TestProbe_FragmentedMessage_ReturnsItsLength(t *testing.T) {
	c := pmltest.OpenWorld(t, stack(partOptions), 2).Comms(t, cid.PolicyAgree)
	var sends []started
	lengths := []int{5, 5000, cm.RTSSize, 3000, 7}
	for i, n := range lengths {
		sends = append(sends, start(t)(c[1].Isend(pml.Buffer{Bytes: numbers(n)}, 0, i%2, pml.PointToPoint, pml.Standard)))
	}
	if st, err := c[0].Probe(t.Context(), pml.AnySource, 1, pml.PointToPoint); err != nil || st.Bytes != 5000 || st.Tag != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	for i, n := range lengths {
		st, err := c[0].Probe(t.Context(), pml.AnySource, pml.AnyTag, pml.PointToPoint)
		if err != nil || st.Bytes != n || st.Tag != i%2 {
			t.Fatalf("message %d of %d bytes: probe found %+v, %v", i, n, st, err)
		}
		got := make([]byte, n)
		if i%2 == 1 {
			var claimed pml.Claimed
			if claimed, st, err = c[0].Mprobe(t.Context(), 1, pml.AnyTag, pml.PointToPoint); err == nil && st.Bytes == n {
				st, err = start(t)(claimed.Irecv(pml.Buffer{Bytes: got})).wait(t)
			}
		} else {
			st, err = c[0].Recv(t.Context(), pml.Buffer{Bytes: got}, 1, pml.AnyTag, pml.PointToPoint)
		}
		if err != nil || st.Bytes != n || !bytes.Equal(got, numbers(n)) {
			t.Errorf("message %d: %+v, %v", i, st, err)
		}
	}
	for _, s := range sends {
		if _, err := s.wait(t); err != nil {
			t.Error(err)
		}
	}
}

// TestSend_MessageEqualsRTS_Arrives covers a user message with the contents of an RTS,
// which a truncated receive may have returned.
func TestSend_MessageEqualsRTS_Arrives(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(partOptions), 2)
	c := w.Comms(t, cid.PolicyAgree)
	g := w.Group()
	for _, b := range [][]byte{
		cm.RTS(g[0].Nonce, g[1].Nonce, 1, 1<<40),
		cm.RTS(g[1].Nonce, g[0].Nonce, 1, 1<<40),
		cm.RTS(g[0].Nonce, 77, 1, 1<<40),
	} {
		s := start(t)(c[1].Isend(pml.Buffer{Bytes: b}, 0, 1, pml.PointToPoint, pml.Standard))
		got := make([]byte, 100)
		st, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: got}, 1, 1, pml.PointToPoint)
		if err != nil || st.Bytes != len(b) || !bytes.Equal(got[:len(b)], b) {
			t.Errorf("%+v, %v, % x", st, err, got[:len(b)])
		}
		if _, err := s.wait(t); err != nil {
			t.Error(err)
		}
	}
}

// TestProbe_SynchronousMessageOfRTSSize_SendWaitsForReceive checks that the probe, which inspects the message, does not complete its send.
func TestProbe_SynchronousMessageOfRTSSize_SendWaitsForReceive(t *testing.T) {
	c := pmltest.OpenWorld(t, stack(partOptions), 2).Comms(t, cid.PolicyAgree)
	s := start(t)(c[1].Isend(pml.Buffer{Bytes: numbers(cm.RTSSize)}, 0, 1, pml.PointToPoint, pml.Synchronous))
	if st, err := c[0].Probe(t.Context(), 1, 1, pml.PointToPoint); err != nil || st.Bytes != cm.RTSSize {
		t.Fatalf("%+v, %v", st, err)
	}
	c[0].Close()
	if _, err := s.wait(t); err == nil {
		t.Error("a synchronous send succeeds without a receive")
	}
}

// TestClose_UnreceivedFragmentedMessage_SendEnds covers a receiver that closes the
// communicator.
func TestClose_UnreceivedFragmentedMessage_SendEnds(t *testing.T) {
	for _, probes := range []bool{false, true} {
		c := pmltest.OpenWorld(t, stack(partOptions), 2).Comms(t, cid.PolicyAgree)
		s := start(t)(c[1].Isend(pml.Buffer{Bytes: numbers(5000)}, 0, 1, pml.PointToPoint, pml.Standard))
		if probes { // A probe has pulled it out of the network.
			if _, err := c[0].Probe(t.Context(), 1, 1, pml.PointToPoint); err != nil {
				t.Fatal(err)
			}
		}
		c[0].Close()
		if _, err := s.wait(t); err != nil {
			t.Error(err)
		}
	}
}

// TestFragments_PeerFails_RequestEnds covers failures of the receiver, before and after its CTS, and of
// the sender.
func TestFragments_PeerFails_RequestEnds(t *testing.T) {
	defer cm.SetDoubtSteps(1)()
	for name, receives := range map[string]bool{"not received": false, "received": true} {
		t.Run(name, func(t *testing.T) {
			w := pmltest.OpenWorld(t, stack(partOptions), 2)
			c := w.Comms(t, cid.PolicyAgree)
			s := start(t)(c[1].Isend(pml.Buffer{Bytes: numbers(5000)}, 0, 1, pml.PointToPoint, pml.Standard))
			if _, err := c[0].Probe(t.Context(), 1, 1, pml.PointToPoint); err != nil {
				t.Fatal(err)
			}
			if !receives {
				w.Procs[1].Module.PeerChanged(framework.FailedEvent(w.Group()[0].Incarnation, "killed"))
				_, err := s.wait(t)
				wantErr(t, "the send", err, framework.ErrProcFailed)
				return
			}
			if err := w.Kill(1); err != nil {
				t.Fatal(err)
			}
			r := start(t)(c[0].Irecv(pml.Buffer{Bytes: make([]byte, 5000)}, 1, 1, pml.PointToPoint))
			w.Procs[0].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
			_, err := r.wait(t)
			wantErr(t, "the receive", err, framework.ErrProcFailed)
		})
	}
}

func TestFragments_ManyConcurrentMessages_DoNotMix(t *testing.T) {
	c := pmltest.OpenWorld(t, stack(partOptions), 2).Comms(t, cid.PolicyLazy)
	const n = 50
	var all []started
	bufs := make([][]byte, n)
	for i := range n {
		bufs[i] = make([]byte, 3000+i)
		all = append(all, start(t)(c[0].Irecv(pml.Buffer{Bytes: bufs[i]}, 1, i%3, pml.PointToPoint)))
	}
	for i := range n {
		all = append(all, start(t)(c[1].Isend(pml.Buffer{Bytes: bytes.Repeat([]byte{byte(i)}, 3000+i)}, 0, i%3, pml.PointToPoint, pml.Standard)))
	}
	for i, r := range all {
		if st, err := r.wait(t); err != nil || i < n && st.Bytes != 3000+i {
			t.Fatalf("%d: %+v, %v", i, st, err)
		}
	}
	for i, b := range bufs {
		if !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, len(b))) {
			t.Errorf("message %d arrived changed", i)
		}
	}
}

// batches is an MTL that completes at least two receives before it reports the first one, and does
// not save prefixes.
type batches struct{ mtl.Component }

func (b batches) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m, err := b.Component.Open(ctx, env)
	return &batching{Module: m, owners: map[*mtl.Op]mtl.Owner{}}, err
}

type batching struct {
	mtl.Module
	owners map[*mtl.Op]mtl.Owner
	over   []*mtl.Op
	// It has reported a receive.
	started bool
}

func (b *batching) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	b.owners[op] = op.Owner
	op.Owner = b
	return b.Module.Recv(op, from, e, buf)
}

func (b *batching) Done(op *mtl.Op) { b.over = append(b.over, op) }

func (b *batching) Poll() int {
	n := b.Module.Poll()
	if len(b.over) < 2 && !b.started {
		return n
	}
	b.started = true
	for len(b.over) > 0 {
		op := b.over[0]
		b.over = b.over[1:]
		op.Owner = b.owners[op]
		op.Owner.Done(op)
	}
	return n
}

// TestFragments_ReceivesShareBuffer_Complete checks that each receive completes, with undefined contents
// (MPI-4.1, 3.7.2). A receive fails if another RTS has overwritten its own. If data has, the data
// is delivered as a message of rtsSize bytes.
func TestFragments_ReceivesShareBuffer_Complete(t *testing.T) {
	s := stack(partOptions)
	s.MTL = batches{s.MTL}
	c := pmltest.OpenWorld(t, s, 2).Comms(t, cid.PolicyLazy)
	buf := make([]byte, 3000)
	var all []started
	for range 8 {
		all = append(all, start(t)(c[0].Irecv(pml.Buffer{Bytes: buf}, 1, 0, pml.PointToPoint)))
	}
	for range 8 {
		_, err := c[1].Isend(pml.Buffer{Bytes: numbers(3000)}, 0, 0, pml.PointToPoint, pml.Standard)
		if err != nil {
			t.Fatal(err)
		}
	}
	overwritten := 0
	for i, r := range all {
		st, err := r.wait(t)
		switch {
		case errors.Is(err, framework.ErrUnsupported), err == nil && st.Bytes == 61:
			overwritten++
		case err != nil || st.Bytes != 3000:
			t.Errorf("%d: %+v, %v", i, st, err)
		}
	}
	if overwritten == 0 {
		t.Error("no head was overwritten: the test shows nothing")
	}
}
