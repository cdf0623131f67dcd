package compose_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestSuspend_ReceivesFromAnySource_MatchMessagesOfBothSides(t *testing.T) {
	w := pmltest.OpenWorld(t, onNodes(2, mtltest.Options{}), 3) // Ranks 0 and 2 share a node.
	c := w.Comms(t, cid.PolicyAgree)
	why := errors.New("a reason")
	suspend := func(why error) { c[0].Suspend(pml.PointToPoint, why) }
	isSuspended := func(what string, r started) {
		t.Helper()
		if _, err := r.Wait(t.Context(), r.gen); err != why || r.Stale(r.gen) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for src := 1; src <= 2; src++ {
		for _, n := range []int{8, 300_000} {
			message := bytes.Repeat([]byte{byte(src)}, n)
			before := irecv(t, c[0], make([]byte, n), pml.AnySource, 1)
			probed := make(chan error, 1)
			go func() {
				_, err := c[0].Probe(t.Context(), pml.AnySource, 2, pml.PointToPoint)
				probed <- err
			}()
			suspend(why)
			after := irecv(t, c[0], make([]byte, n), pml.AnySource, 1)
			isSuspended("posted before", before)
			isSuspended("posted after", after)
			if err := <-probed; err != why {
				t.Errorf("probe: %v", err)
			}
			if _, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: make([]byte, n)}, pml.AnySource, 1, pml.PointToPoint); err != why {
				t.Errorf("blocking receive: %v", err)
			}
			for _, r := range []started{before, after} { // The blocking receive takes no message.
				send(t, c[src], 0, 1, string(message))
				until(t, func() bool { _, done, err := r.Peek(r.gen); return done && err == nil })
				if st, err := r.Wait(t.Context(), r.gen); err != nil || st.Source != src || st.Bytes != n {
					t.Errorf("message of rank %d: %+v %v", src, st, err)
				}
			}
			send(t, c[src], 0, 2, "found")
			until(t, func() bool {
				st, ok, err := c[0].Iprobe(pml.AnySource, 2, pml.PointToPoint)
				return ok && err == nil && st.Source == src
			})
			canceled, freed := irecv(t, c[0], nil, pml.AnySource, 3), irecv(t, c[0], nil, pml.AnySource, 3)
			if err := errors.Join(canceled.Cancel(canceled.gen), freed.Free(freed.gen)); err != nil {
				t.Error(err)
			}
			if st, err := canceled.Wait(t.Context(), canceled.gen); err != nil || !st.Canceled {
				t.Errorf("canceled: %+v %v", st, err)
			}
			suspend(nil)
			if st, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: make([]byte, n)}, pml.AnySource, 2, pml.PointToPoint); err != nil || st.Source != src {
				t.Errorf("resumed: %+v %v", st, err)
			}
			send(t, c[src], 0, 3, "") // For the freed receive.
		}
	}
}
