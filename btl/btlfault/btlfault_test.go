package btlfault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWrap_InnerRegistered_BothAreFound(t *testing.T) {
	r := framework.NewRegistry()
	r.Register(shm.Component())
	r.Register(btlfault.Wrap(shm.Component(), btlfault.Plan{Drop: 20}).As("drop", "loses frames"))
	c, ok := r.Lookup(framework.BTL, "drop")
	if !ok || c.Info().Name != "drop" || c.Info().Summary != "loses frames" || c.Info().Version != shm.Component().Info().Version {
		t.Errorf("%v, %t", c, ok)
	}
}

// Delays are within the contract.
func TestContract_DelayedFrames_Holds(t *testing.T) {
	for name, inner := range map[string]func() btl.Component{"self": self.Component, "shm": shm.OnHeap} {
		t.Run(name, func(t *testing.T) {
			btltest.Cases(btltest.Subject{Component: btlfault.Wrap(inner(), btlfault.Plan{Seed: 1, Delay: 5})}).Run(t)
		})
	}
}

func TestModule_Wrapped_KeepsAbilities(t *testing.T) {
	w, faults := world(t, btlfault.Plan{Delay: 2})
	comms, err := w.Comm(cid.PolicyAgree)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Blocking receives sleep and need the doorbell of the wrapped module.
	err = pmltest.Each(comms, func(rank int, c pml.Comm) error {
		for range 200 {
			if rank == 0 {
				if err := c.Send(ctx, pml.Buffer{Bytes: []byte{1}}, 1, 0, pml.PointToPoint, pml.Synchronous); err != nil {
					return err
				}
			} else if _, err := c.Recv(ctx, pml.Buffer{Bytes: make([]byte, 1)}, 0, 0, pml.PointToPoint); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if faults.Injected() == 0 {
		t.Error("no fault was injected")
	}
}

// Faults cause an error or no effect, and no message arrives twice or out of order.
func TestProtocol_FaultyTransport_ReturnsErrorOrCorrectMessages(t *testing.T) {
	for name, plan := range map[string]btlfault.Plan{
		"lost":    {Drop: 50},
		"doubled": {Duplicate: 50},
		"damaged": {Corrupt: 50},
		"swapped": {Reorder: 50},
		"ended":   {KillAfter: 60},
		"all":     {Drop: 200, Duplicate: 200, Corrupt: 200, Reorder: 200, KillAfter: 500, Delay: 5, WouldBlock: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := 0
			for seed := range uint64(10) {
				plan.Seed = seed
				if err := traffic(t, plan); err != nil {
					// A damaged length may exceed the buffer.
					longer := plan.Corrupt > 0 && errors.Is(err, framework.ErrTruncate)
					if !errors.Is(err, framework.ErrTransport) && !errors.Is(err, errHung) && !longer {
						t.Errorf("seed %d: %v", seed, err)
					}
					failed++
				}
			}
			if failed == 0 {
				t.Error("no fault was noticed")
			}
		})
	}
}

// errHung ends an exchange after a lost frame without a successor that reveals the gap.
var errHung = errors.New("exchange stopped after a lost frame")

// traffic sends numbered messages of several sizes both ways. Its error is that of the transport,
// or describes a wrong message.
func traffic(t *testing.T, plan btlfault.Plan) error {
	w, _ := world(t, plan)
	comms, err := w.Comm(cid.PolicyLazy)
	if err != nil {
		t.Fatal(err)
	}
	hung, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errHung)
	defer cancel()
	ctx, fail := context.WithCancelCause(hung)
	defer fail(nil)
	// Matched requests wait for their peer regardless of the context. Both peers are therefore
	// failed at the end of the context.
	stop := context.AfterFunc(ctx, func() {
		for rank, p := range w.Procs {
			p.Module.PeerChanged(framework.FailedEvent(w.Group()[1-rank].Incarnation, context.Cause(ctx).Error()))
		}
	})
	defer stop()
	var first error
	if err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
		err := exchange(ctx, c, 1-rank, plan.Corrupt > 0)
		if err != nil {
			fail(err)
		}
		return err
	}); err != nil {
		first = context.Cause(ctx) // the other is a consequence
	}
	return first
}

// exchange sends 200 messages and receives as many. Contents may be damaged.
func exchange(ctx context.Context, c pml.Comm, peer int, damaged bool) error {
	sizes := []int{8, 100, 3000, 50_000}
	sends, gens := make([]*pml.Request, 200), make([]uint32, 200)
	for i := range sends {
		out := make([]byte, sizes[i%len(sizes)])
		out[0], out[len(out)-1] = byte(i), byte(i)
		var err error
		if sends[i], err = c.Isend(pml.Buffer{Bytes: out}, peer, i, pml.PointToPoint, pml.Standard); err != nil {
			return err
		}
		gens[i] = sends[i].Generation()
	}
	buf := make([]byte, 50_000)
	for i := range sends {
		st, err := c.Recv(ctx, pml.Buffer{Bytes: buf}, peer, pml.AnyTag, pml.PointToPoint)
		if err != nil {
			return err
		}
		if !damaged && (st.Tag != i || st.Bytes != sizes[i%len(sizes)] || buf[0] != byte(i) || buf[st.Bytes-1] != byte(i)) {
			return fmt.Errorf("message %d: %+v, first byte %d", i, st, buf[0])
		}
	}
	for i, s := range sends {
		if _, err := s.Wait(ctx, gens[i]); err != nil {
			return err
		}
	}
	return nil
}

func world(t *testing.T, plan btlfault.Plan) (*pmltest.World, *btlfault.Component) {
	t.Helper()
	faults := btlfault.Wrap(shm.OnHeap(), plan)
	w, err := pmltest.NewWorld(pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), faults}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w, faults
}
