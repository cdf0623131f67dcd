package ob1_test

import (
	"context"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// Messages of all kinds are received, truncated, canceled, claimed, and dropped with their
// communicator, before and after their receives. In the end all credit is with the sender or
// owed to it. Otherwise two processes would stall after a long time.
func TestCredit_MessagesOfAllKinds_IsReturned(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 2)
	modules := [2]*ob1.Module{w.Procs[0].Module.(*ob1.Module), w.Procs[1].Module.(*ob1.Module)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sizes := []int{0, 8, 5000, 32 << 10, 100 << 10, 400 << 10}
	for _, policy := range []cid.Policy{cid.PolicyAgree, cid.PolicyLazy} {
		cs, err := w.Comm(policy)
		if err != nil {
			t.Fatal(err)
		}
		var sends []*pml.Request
		start := func(tag, size int, mode pml.Mode) *pml.Request {
			r, err := cs[0].Isend(pml.Buffer{Bytes: make([]byte, size)}, 1, tag, pml.PointToPoint, mode)
			if err != nil {
				t.Fatal(err)
			}
			sends = append(sends, r)
			return r
		}
		receive := func(tag, room int) {
			if st, err := cs[1].Recv(ctx, pml.Buffer{Bytes: make([]byte, room)}, 0, tag, pml.PointToPoint); err != nil && st.Bytes <= room {
				t.Fatal(err)
			}
		}
		for round := range 10 {
			for k, size := range sizes {
				tag := round*100 + k*10
				start(tag, size, pml.Standard)
				receive(tag, size)
				start(tag+1, size, pml.Standard)
				receive(tag+1, size/3)
				start(tag+2, size, pml.Synchronous)
				r, err := cs[1].Irecv(pml.Buffer{Bytes: make([]byte, size)}, 0, tag+3, pml.PointToPoint)
				if err != nil {
					t.Fatal(err)
				}
				start(tag+3, size, pml.Standard)
				if _, err := r.Wait(ctx, r.Generation()); err != nil {
					t.Fatal(err)
				}
				receive(tag+2, size)
				gone := start(tag+4, size, pml.Standard)
				if err := gone.Cancel(gone.Generation()); err != nil {
					t.Fatal(err)
				}
				start(tag+5, size, pml.Standard)
				m, st, err := cs[1].Mprobe(ctx, 0, tag+5, pml.PointToPoint)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := m.Recv(ctx, pml.Buffer{Bytes: make([]byte, st.Bytes)}); err != nil {
					t.Fatal(err)
				}
			}
			start(7000+round, 50<<10, pml.Standard)
		}
		cs[1].Close()
		for _, r := range sends {
			if _, err := r.Wait(ctx, r.Generation()); err != nil {
				t.Fatal(err)
			}
		}
		cs[0].Close()
	}
	for ctx.Err() == nil {
		// Credit may be in flight.
		for _, p := range w.Procs {
			p.Engine.Lock()
			p.Engine.Progress()
			p.Engine.Unlock()
		}
		if have, owed, all := ob1.Balance(modules[0], modules[1]); have+owed == all {
			return
		}
	}
	have, owed, all := ob1.Balance(modules[0], modules[1])
	t.Errorf("the sender has %d bytes of credit and is owed %d, of %d", have, owed, all)
}
