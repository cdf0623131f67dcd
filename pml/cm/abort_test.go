package cm_test

import (
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestAbort_MessagesAreInTheNetwork_LaterReceivesAndProbesFail guards the order of messages. If the first message is held,
// the second must not match in its place.
func TestAbort_MessagesAreInTheNetwork_LaterReceivesAndProbesFail(t *testing.T) {
	for _, later := range []string{"receive", "probe"} {
		t.Run(later, func(t *testing.T) {
			c := pmltest.OpenWorld(t, stack(mtltest.Options{Inject: 1 << 10}), 2).Comms(t, cid.PolicyAgree)
			meet(t, c, 1)
			for range 2 {
				send(t, c[1], 0, 1, "message")
			}
			if _, err := c[0].Probe(t.Context(), 1, 1, pml.PointToPoint); err != nil {
				t.Fatal(err)
			}
			c[0].Abort(pml.PointToPoint, errPending)
			var err error
			if later == "receive" {
				_, err = start(t)(recvInto(c[0], 1, 1)).wait(t)
			} else {
				_, _, _, err = c[0].Improbe(1, 1, pml.PointToPoint)
			}
			wantErr(t, later, err, errPending)
		})
	}
}

// TestAbort_ProbeHasFetchedTheMessage_SendEnds aborts the plane in both members.
func TestAbort_ProbeHasFetchedTheMessage_SendEnds(t *testing.T) {
	c := pmltest.OpenWorld(t, stack(partOptions), 2).Comms(t, cid.PolicyAgree)
	s := start(t)(c[1].Isend(pml.Buffer{Bytes: numbers(5000)}, 0, 1, pml.PointToPoint, pml.Synchronous))
	if _, err := c[0].Probe(t.Context(), 1, 1, pml.PointToPoint); err != nil {
		t.Fatal(err)
	}
	for _, c := range c {
		c.Abort(pml.PointToPoint, errPending)
	}
	_, err := s.wait(t)
	wantErr(t, "the send", err, errPending)
}
