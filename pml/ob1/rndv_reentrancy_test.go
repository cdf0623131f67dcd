package ob1_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// chainedReceives posts a window of large receives. Each one that completes is released by its
// notifier, which posts the next one with the same request at once. The engine's lock guards it.
type chainedReceives struct {
	m         *ob1.Module
	c         pml.Comm
	want      [][]byte
	got       [][]byte
	posted    int
	completed int
	err       error
}

// Completed implements pml.Notifier.
func (r *chainedReceives) Completed(done *pml.Request) {
	_, _, err := done.Take(done.Generation())
	r.end(err)
	r.post()
}

func (r *chainedReceives) end(err error) {
	r.completed++
	if r.err == nil {
		r.err = err
	}
}

// post posts one receive, and further ones as long as they complete at once.
func (r *chainedReceives) post() {
	for r.posted < len(r.want) {
		i := r.posted
		r.posted++
		r.got[i] = make([]byte, len(r.want[i]))
		q := r.c.StartRecv(pml.Buffer{Bytes: r.got[i]}, 0, 1, pml.PointToPoint)
		if !q.Done() {
			q.Notify(r)
			return
		}
		_, _, err := q.Take(q.Generation())
		r.end(err)
	}
}

// A notifier starts a receive with the request that has just completed, in the middle of a
// step, of the start of scheduled messages, or of the answer to an RTS. Every message arrives
// complete, and no copy is left over.
func TestRendezvous_NotifierReusesRequest_MessagesArrive(t *testing.T) {
	copies(t)
	for _, protocol := range []string{"pipeline", "get", "put", "split", "random"} {
		for _, unexpected := range []bool{false, true} {
			for _, window := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s, unexpected %v, %d at a time", protocol, unexpected, window), func(t *testing.T) {
					testChainedReceives(t, protocol, unexpected, window)
				})
			}
		}
	}
}

func testChainedReceives(t *testing.T, protocol string, unexpected bool, window int) {
	w := pmltest.OpenWorld(t, copyStack(protocol, cma.Read, cma.Write), 2)
	comms := w.Comms(t, cid.PolicyAgree)
	ctx := bounded(t)
	const messages = 24
	r := &chainedReceives{m: w.Procs[1].Module.(*ob1.Module), c: comms[1], got: make([][]byte, messages)}
	for i := range messages {
		r.want = append(r.want, patterned(70_000+i*9001, byte(i)))
	}
	engine := w.Procs[1].Engine
	post := func() {
		engine.Lock()
		defer engine.Unlock()
		for range window {
			r.post()
		}
	}
	if !unexpected {
		post()
	}
	sends := make([]*pml.Request, messages)
	for i, b := range r.want {
		var err error
		if sends[i], err = comms[0].Isend(pml.Buffer{Bytes: b}, 1, 1, pml.PointToPoint, pml.Standard); err != nil {
			t.Fatal(err)
		}
	}
	if unexpected {
		// All RTSs arrive before the first receive.
		for len(unexpectedOf(w)) < messages {
			engine.Lock()
			engine.Progress()
			engine.Unlock()
			w.Procs[0].Engine.Lock()
			w.Procs[0].Engine.Progress()
			w.Procs[0].Engine.Unlock()
			if ctx.Err() != nil {
				t.Fatal("the RTSs do not arrive")
			}
		}
		post()
	}
	for done := false; !done; {
		engine.Lock()
		engine.Progress()
		done = r.completed == messages
		_, isUnique := ob1.CopiesInProgress(r.m)
		engine.Unlock()
		w.Procs[0].Engine.Lock()
		w.Procs[0].Engine.Progress()
		w.Procs[0].Engine.Unlock()
		if !isUnique {
			t.Fatal("a request is listed twice")
		}
		if ctx.Err() != nil {
			t.Fatalf("%d of %d receives are complete", r.completed, messages)
		}
	}
	for _, s := range sends {
		if _, err := s.Wait(ctx, s.Generation()); err != nil {
			t.Fatal(err)
		}
	}
	engine.Lock()
	defer engine.Unlock()
	if r.err != nil {
		t.Fatal(r.err)
	}
	for i := range r.want {
		if !bytes.Equal(r.got[i], r.want[i]) {
			t.Errorf("message %d has wrong contents", i)
		}
	}
	engine.Progress()
	if n, _ := ob1.CopiesInProgress(r.m); n != 0 {
		t.Errorf("%d copies are still in progress", n)
	}
}

// unexpectedOf returns the unexpected messages of rank 1.
func unexpectedOf(w *pmltest.World) (all []pml.Pending) {
	for _, c := range pmltest.Inspect(w.Procs[1].Module).Comms {
		all = append(all, c.Unexpected...)
	}
	return all
}

// unanswering is a BTL that connects rank 1 to no other process.
type unanswering struct{ btl.Component }

var errUnanswering = errors.New("no path back")

func (u unanswering) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m, err := u.Component.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	return unansweringModule{m, env.Identity.Proc}, nil
}

type unansweringModule struct {
	btl.Module
	self framework.Proc
}

// Unwrap lets framework.As find the optional interfaces of the module.
func (m unansweringModule) Unwrap() any { return m.Module }

func (m unansweringModule) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if m.self.Rank == 1 && peer.Proc != m.self {
		return nil, errUnanswering
	}
	return m.Module.Connect(peer)
}

// The receiver cannot open the path for its answers. Receives that need the sender's help fail
// after the time for a better reason. Each one ends once, although its notifier reuses the
// request meanwhile.
func TestRendezvous_AnswerHasNoPath_ReceivesEndOnce(t *testing.T) {
	copies(t)
	for protocol, fails := range map[string]bool{"pipeline": true, "get": false, "put": true, "split": false} {
		t.Run(protocol, func(t *testing.T) { testUnanswered(t, protocol, fails) })
	}
}

func testUnanswered(t *testing.T, protocol string, fails bool) {
	s := copyStack(protocol, cma.Read, cma.Write)
	for i, b := range s.BTLs {
		s.BTLs[i] = unanswering{b}
	}
	w := pmltest.OpenWorld(t, s, 2)
	comms := w.Comms(t, cid.PolicyAgree)
	ctx := bounded(t)
	r := &chainedReceives{m: w.Procs[1].Module.(*ob1.Module), c: comms[1]}
	for i := range 4 {
		r.want = append(r.want, patterned(200_000, byte(i)))
	}
	r.got = make([][]byte, len(r.want))
	engine := w.Procs[1].Engine
	engine.Lock()
	r.post()
	r.post()
	engine.Unlock()
	for _, b := range r.want {
		if _, err := comms[0].Isend(pml.Buffer{Bytes: b}, 1, 1, pml.PointToPoint, pml.Standard); err != nil {
			t.Fatal(err)
		}
	}
	for done := false; !done; {
		for _, p := range w.Procs {
			p.Engine.Lock()
			p.Engine.Progress()
			p.Engine.Unlock()
		}
		engine.Lock()
		done = r.completed == len(r.want)
		engine.Unlock()
		if ctx.Err() != nil {
			t.Fatalf("%d of %d receives have ended", r.completed, len(r.want))
		}
	}
	engine.Lock()
	defer engine.Unlock()
	engine.Progress()
	if fails != errors.Is(r.err, framework.ErrTransport) || r.completed != len(r.want) {
		t.Errorf("%d receives ended, and the first error is %v", r.completed, r.err)
	}
	if n, _ := ob1.CopiesInProgress(r.m); n != 0 {
		t.Errorf("%d copies are still in progress", n)
	}
}
