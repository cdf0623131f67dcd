package cm_test

import (
	"context"
	"errors"
	"fmt"
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

// surprises is an in-memory network that runs a function at rank 0 in the poll after a
// receive was posted.
type surprises struct {
	mtl.Component
	// Guarded by rank 0's lock.
	happens func(mtl.Receiver)
	due     bool
}

func (s *surprises) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m, err := s.Component.Open(ctx, env)
	if err == nil && env.Identity.Proc.Rank == 0 {
		m = &surprisedModule{m, s, env.Upcall}
	}
	return m, err
}

type surprisedModule struct {
	mtl.Module
	s  *surprises
	up mtl.Receiver
}

func (m *surprisedModule) Interval() time.Duration { return 100 * time.Microsecond }

func (m *surprisedModule) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	m.s.due = m.s.happens != nil
	return m.Module.Recv(op, from, e, buf)
}

func (m *surprisedModule) Poll() int {
	if m.s.due {
		m.s.due = false
		m.s.happens(m.up)
		m.s.happens = nil
	}
	return m.Module.Poll()
}

// TestRecvDirect_EventDuringPoll_EndsReceive checks that events end the receive that polls.
func TestRecvDirect_EventDuringPoll_EndsReceive(t *testing.T) {
	broken := errors.New("the network is broken")
	for _, x := range []struct {
		name    string
		want    error
		happens func(net *mtltest.Memory, w *pmltest.World, id cid.Extended) func(mtl.Receiver)
		// Rank 0 is unusable afterwards.
		fatal bool
	}{
		{"refusal", framework.ErrNotMember, func(_ *mtltest.Memory, w *pmltest.World, id cid.Extended) func(mtl.Receiver) {
			g := w.Group()
			return func(up mtl.Receiver) { up.Control(cm.Refused(g[0].Nonce, g[1].Nonce, id, 1)) }
		}, false},
		{"two ids", framework.ErrTransport, func(_ *mtltest.Memory, w *pmltest.World, id cid.Extended) func(mtl.Receiver) {
			g := w.Group()
			return func(up mtl.Receiver) {
				up.Control(cm.Reply(g[0].Nonce, g[1].Nonce, id, 1, cid.MakeLocal(1000, 3)))
			}
		}, false},
		{"failure of the network", broken, func(net *mtltest.Memory, w *pmltest.World, id cid.Extended) func(mtl.Receiver) {
			return func(mtl.Receiver) { net.Fail(0, broken) }
		}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			defer cm.SetDoubtSteps(2)()
			net := mtltest.NewMemory(mtltest.Options{})
			s := &surprises{Component: net.Component()}
			w := pmltest.OpenWorld(t, pmltest.Stack{PML: cm.Component(), MTL: s}, 3)
			id := w.NextID()
			var c []pml.Comm
			for rank := range w.Procs {
				c = append(c, join(t, w, id, rank))
			}
			send(t, c[0], 1, 1, "id")
			receive(t, c[1], 0, 1, "id")
			send(t, c[1], 0, 1, "there") // Connects the member and exchanges ids.
			receive(t, c[0], 1, 1, "there")
			w.Procs[0].Engine.Lock()
			s.happens = x.happens(net, w, id)
			w.Procs[0].Engine.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := c[0].Recv(ctx, pml.Buffer{Bytes: make([]byte, 8)}, 1, 2, pml.PointToPoint)
			wantErr(t, "receive", err, x.want)
			if x.fatal {
				return
			}
			for i := range 3 { // Later receives of other messages match.
				send(t, c[2], 0, 3, fmt.Sprint(i))
				receive(t, c[0], 2, 3, fmt.Sprint(i))
			}
		})
	}
}

// starter is a notifier that starts a send and a receive.
type starter struct {
	t   *testing.T
	c   pml.Comm
	in  []byte
	got *pml.Request
}

// Completed implements pml.Notifier.
func (s *starter) Completed(r *pml.Request) {
	r.Take(r.Generation())
	if _, err := s.c.StartSend(text("go"), 1, 3, pml.PointToPoint, pml.Standard); err != nil {
		s.t.Error(err)
	}
	s.got = s.c.StartRecv(pml.Buffer{Bytes: s.in}, 1, 4, pml.PointToPoint)
}

// TestRecvDirect_CallbackStartsRequests_OpIsNotShared checks that requests started in a callback use
// other ops.
func TestRecvDirect_CallbackStartsRequests_OpIsNotShared(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(eager), 2)
	c := w.Comms(t, cid.PolicyAgree)
	for range 100 {
		s := &starter{t: t, c: c[0], in: make([]byte, 4)}
		w.Procs[0].Engine.Lock()
		c[0].StartRecv(pml.Buffer{Bytes: make([]byte, 4)}, 1, 1, pml.PointToPoint).Notify(s)
		w.Procs[0].Engine.Unlock()
		for tag, what := range []string{1: "one", 2: "two", 4: "four"} {
			if what != "" {
				send(t, c[1], 0, tag, what)
			}
		}
		receive(t, c[0], 1, 2, "two") // The same poll delivers the other message first.
		receive(t, c[1], 0, 3, "go")
		w.Procs[0].Engine.Lock()
		got, gen := s.got, s.got.Generation()
		w.Procs[0].Engine.Unlock()
		if st, err := got.Wait(t.Context(), gen); err != nil || string(s.in[:st.Bytes]) != "four" {
			t.Fatalf("%q: %+v %v", s.in, st, err)
		}
	}
}

// TestRecvDirect_MessageIsTruncated_NextReceiveMatches checks two receives that use the same op.
func TestRecvDirect_MessageIsTruncated_NextReceiveMatches(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(eager), 2)
	c := w.Comms(t, cid.PolicyAgree)
	for i := range 10 {
		send(t, c[1], 0, i, "too long")
		send(t, c[1], 0, i, "short")
		st, err := c[0].Recv(t.Context(), pml.Buffer{Bytes: make([]byte, 3)}, 1, i, pml.PointToPoint)
		if !errors.Is(err, framework.ErrTruncate) || st.Bytes != 8 || st.Source != 1 || st.Tag != i {
			t.Errorf("%+v %v", st, err)
		}
		receive(t, c[0], 1, i, "short")
	}
}

// counted counts its polls.
type counted struct{ polls int }

// Poll implements progress.Source.
func (c *counted) Poll() int { c.polls++; return 0 }

// TestRecvDirect_MessagesAlwaysPresent_OtherSourcesArePolled checks that other sources and pending
// requests of this one make progress.
func TestRecvDirect_MessagesAlwaysPresent_OtherSourcesArePolled(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(eager), 2)
	c := w.Comms(t, cid.PolicyAgree)
	other := new(counted)
	e := w.Procs[0].Engine
	e.Add(other)
	defer e.Remove(other)
	const n = 6400
	for range n {
		send(t, c[1], 0, 1, "x")
		receive(t, c[0], 1, 1, "x")
	}
	e.Lock()
	defer e.Unlock()
	if other.polls < n/64 {
		t.Errorf("%d messages, %d polls", n, other.polls)
	}
}
