package ob1_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// A smaller message must not match in place of an unreceived large one after their sender has
// failed.
func TestRTS_SenderFails_OrderIsKept(t *testing.T) {
	w, err := pmltest.NewWorld(stack(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	comms, err := w.Comm(cid.PolicyAgree)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const plane = pml.PointToPoint
	for tag, size := range []int{1 << 20, 1} {
		if _, err := comms[1].Isend(pml.Buffer{Bytes: make([]byte, size)}, 0, tag, plane, pml.Standard); err != nil {
			t.Fatal(err)
		}
	}
	// Both messages have arrived.
	if _, err := comms[0].Probe(ctx, 1, 1, plane); err != nil {
		t.Fatal(err)
	}
	w.Procs[0].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
	buf := pml.Buffer{Bytes: make([]byte, 1<<20)}
	if st, err := comms[0].Recv(ctx, buf, pml.AnySource, pml.AnyTag, plane); !errors.Is(err, framework.ErrProcFailed) || st.Tag != 0 {
		t.Errorf("first message: %+v, %v; want the large one's failure", st, err)
	}
	if st, err := comms[0].Recv(ctx, buf, 1, pml.AnyTag, plane); err != nil || st.Tag != 1 {
		t.Errorf("second message: %+v, %v", st, err)
	}
}
