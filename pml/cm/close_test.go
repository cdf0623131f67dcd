package cm_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// slowProbes is an in-memory network. Of the claiming probes of rank 1 on the point-to-point
// plane, number hold completes only when it is released.
type slowProbes struct {
	mtl.Component
	mu       sync.Mutex
	hold     int
	op       *mtl.Op // The held probe.
	from     mtl.Endpoint
	envelope mtl.Envelope
	released bool
	// A message was sent under the id of the held probe.
	reused bool
}

func newSlowProbes(hold int, opt mtltest.Options) (*slowProbes, pmltest.Stack) {
	s := &slowProbes{Component: mtltest.NewMemory(opt).Component(), hold: hold}
	return s, pmltest.Stack{PML: cm.Component(), MTL: s}
}

func (s *slowProbes) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m, err := s.Component.Open(ctx, env)
	return &slowModule{m, s, env.Identity.Proc.Rank}, err
}

func (s *slowProbes) locked(f func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

func (s *slowProbes) isHeld() bool    { return s.locked(func() bool { return s.op != nil }) }
func (s *slowProbes) wasReused() bool { return s.locked(func() bool { return s.reused }) }
func (s *slowProbes) release()        { s.locked(func() bool { s.released = true; return true }) }

// pull starts a pull of a member's messages, and returns while the held probe is in
// progress. pulled is closed at the end of the pull.
func (s *slowProbes) pull(t *testing.T, m pml.Module, rank int) (pulled <-chan struct{}) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		cm.Pull(m, rank)
	}()
	until(t, "the held probe", s.isHeld)
	return over
}

type slowModule struct {
	mtl.Module
	s    *slowProbes
	rank uint32
}

func (m *slowModule) Interval() time.Duration { return 100 * time.Microsecond }

func (m *slowModule) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	if m.rank == 1 && claim && m.s.locked(func() bool {
		if e.CID&3 != uint32(pml.PointToPoint) {
			return false
		}
		if m.s.hold--; m.s.hold != 0 {
			return false
		}
		m.s.op, m.s.from, m.s.envelope = op, from, e
		return true
	}) {
		return nil
	}
	return m.Module.Probe(op, from, e, claim)
}

func (m *slowModule) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (bool, error) {
	m.s.locked(func() bool {
		if m.rank == 0 && m.s.op != nil && e.CID == m.s.envelope.CID {
			m.s.reused, m.s.released = true, true
		}
		return true
	})
	return m.Module.Send(op, to, e, buf, mode)
}

func (m *slowModule) Poll() int {
	var op *mtl.Op
	m.s.locked(func() bool {
		if m.rank == 1 && m.s.released {
			op, m.s.op = m.s.op, nil
		}
		return true
	})
	if op != nil {
		if err := m.Module.Probe(op, m.s.from, m.s.envelope, true); err != nil {
			panic(err) // The in-memory network does not fail.
		}
	}
	return m.Module.Poll()
}

// until waits for a condition that another goroutine establishes.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for start := time.Now(); !f(); runtime.Gosched() {
		if time.Since(start) > 30*time.Second {
			t.Fatalf("%s: not within 30s", what)
		}
	}
}

// TestClose_PullInProgress_DeferredReceivesMatch checks that receives posted before the
// close match messages that are pulled after it.
func TestClose_PullInProgress_DeferredReceivesMatch(t *testing.T) {
	s, st := newSlowProbes(2, mtltest.Options{})
	w := pmltest.OpenWorld(t, st, 2)
	c := w.Comms(t, cid.PolicyAgree)
	for tag := range 3 {
		send(t, c[0], 1, tag, "for a receive that waits")
	}
	if _, err := c[1].Probe(t.Context(), 0, 2, pml.PointToPoint); err != nil {
		t.Fatal(err)
	}
	pulled := s.pull(t, w.Procs[1].Module, 0)
	var reqs []*pml.Request
	var gens []uint32
	for tag := range 3 {
		r, err := c[1].Irecv(pml.Buffer{Bytes: make([]byte, 64)}, 0, tag, pml.PointToPoint)
		if err != nil {
			t.Fatal(err)
		}
		reqs, gens = append(reqs, r), append(gens, r.Generation())
	}
	c[1].Close()
	s.release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i, r := range reqs {
		if st, err := r.Wait(ctx, gens[i]); err != nil || st.Tag != i {
			t.Errorf("receive %d: %+v %v", i, st, err)
		}
	}
	<-pulled
	c[0].Close()
}

// TestRecv_SenderBecomesUnreachableDuringPull_Fails checks that each deferred receive ends once.
func TestRecv_SenderBecomesUnreachableDuringPull_Fails(t *testing.T) {
	s, st := newSlowProbes(1, mtltest.Options{})
	w := pmltest.OpenWorld(t, st, 3)
	m := w.Procs[1].Module
	if err := m.Learn(w.Reborn(0, 7), nil); err != nil { // Without an address.
		t.Fatal(err)
	}
	c := join(t, w, w.NextID(), 1)
	pulled := s.pull(t, m, 2)
	reqs := []started{start(t)(recvInto(c, 0, 1)), start(t)(recvInto(c, 0, 2))}
	s.release()
	for _, r := range reqs {
		_, err := r.wait(t)
		wantErr(t, "a receive", err, framework.ErrTransport)
	}
	<-pulled
}

// TestClose_ReaperProbeInProgress_IndexIsNotReused guards the next communicator with this id,
// whose message the probe would claim and drop.
func TestClose_ReaperProbeInProgress_IndexIsNotReused(t *testing.T) {
	s, st := newSlowProbes(1, mtltest.Options{CIDBits: 8}) // 64 indices, no generation bits.
	w := pmltest.OpenWorld(t, st, 2)
	cycle := func() {
		c := w.Comms(t, cid.PolicyAgree)
		send(t, c[0], 1, 1, "hello")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := c[1].Recv(ctx, pml.Buffer{Bytes: make([]byte, 8)}, 0, 1, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		c[0].Close()
		c[1].Close()
		for _, p := range w.Procs {
			until(t, "rest", func() bool { _, _, quarantined := p.Module.CIDs().Counts(); return quarantined < 32 })
		}
	}
	for _, c := range w.Comms(t, cid.PolicyAgree) {
		c.Close()
	}
	until(t, "a probe of the reaper", s.isHeld)
	for range 200 {
		cycle()
	}
	if s.wasReused() {
		t.Error("an id was reused while a probe for it was in progress")
	}
	s.release()
	until(t, "the end of the probe", func() bool { return !s.isHeld() })
	for _, p := range w.Procs {
		until(t, "rest", func() bool { _, _, quarantined := p.Module.CIDs().Counts(); return quarantined <= 16 })
	}
}
