package cm_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestReceiveFromTheDeadTakesNobodyElsesMessage: one from a member that failed before
// it was ever connected.
func TestReceiveFromTheDeadTakesNobodyElsesMessage(t *testing.T) {
	for name, s := range map[string]pmltest.Stack{"memory": stack(mtltest.Options{}), "ofi": overOFI(t, "tcp;ofi_rxm", 0)} {
		t.Run(name, func(t *testing.T) {
			w := pmltest.OpenWorld(t, s, 2)
			c := w.Comms(t, cid.PolicyAgree)
			send(t, c[0], 0, 7, "to myself")
			w.Procs[0].Module.PeerFailed(w.Group()[1].Life, "killed")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			buf := make([]byte, 64)
			st, err := c[0].Recv(ctx, pml.Buffer{Bytes: buf}, 1, 7, pml.PointToPoint)
			if err == nil || !errors.Is(err, framework.ErrProcFailed) {
				t.Errorf("a receive from rank 1, which is dead, got %q: %+v, %v", buf[:min(max(st.Bytes, 0), len(buf))], st, err)
			}
		})
	}
}
