package shm

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// pair is two processes whose modules a test polls and inspects.
type pair struct {
	namespace string
	procs     [2]*testProc
}

type testProc struct {
	module          btl.Module
	incarnation     framework.Incarnation
	engine          *progress.Engine
	pathDownErrors  []error
	peerEndedErrors []error
	frames          int
	// 0 if Limits was not called.
	frameLimit int
	frameErr   error // Result of Frame.
}

// incarnation returns the identity of a rank of a pair.
func incarnation(rank int) framework.Incarnation {
	return framework.Incarnation{ID: framework.MakeProcID(0, uint32(rank)), Nonce: uint64(rank) + 1}
}

func (p *testProc) Accept(framework.Incarnation) btl.Inbound { return p }
func (p *testProc) PathDown(_ framework.Incarnation, err error) {
	p.pathDownErrors = append(p.pathDownErrors, err)
}
func (p *testProc) PeerChanged(ev framework.PeerEvent) {
	p.peerEndedErrors = append(p.peerEndedErrors, ev.Err)
}
func (p *testProc) LinkChanged(framework.Incarnation, string) {}
func (p *testProc) Card(framework.Incarnation) (framework.Peer, bool) {
	return framework.Peer{}, false
}
func (p *testProc) Place([]byte, int) []byte                     { return nil }
func (p *testProc) Placed([]byte, int) error                     { return nil }
func (p *testProc) Limits(_ framework.Incarnation, _, frame int) { p.frameLimit = frame }
func (p *testProc) Frame([]byte) error                           { p.frames++; return p.frameErr }
func newPair(t *testing.T, change func(int, *params)) *pair      { return newPairOf(t, OnHeap(), change) }

func newPairOf(t *testing.T, c btl.Component, change func(rank int, p *params)) *pair {
	t.Helper()
	w := &pair{namespace: t.Name()}
	for rank := range w.procs {
		w.procs[rank] = openProc(t, c, bootstrap.Identity{
			Proc: framework.Proc{Namespace: w.namespace, Rank: uint32(rank)}, Size: 2, LocalRank: rank, LocalSize: 2,
		}, func(p *params) {
			if change != nil {
				change(rank, p)
			}
		})
	}
	t.Cleanup(func() { w.close(t) })
	return w
}

// openProc opens the module of a process. The caller closes it and its engine.
func openProc(t *testing.T, c btl.Component, id bootstrap.Identity, change func(*params)) *testProc {
	t.Helper()
	p := &testProc{incarnation: incarnation(int(id.Proc.Rank)), engine: progress.New(progress.Options{NodeProcs: id.LocalSize})}
	values := c.Params().(*params)
	framework.FillDefaults(values)
	change(values)
	var err error
	p.module, err = c.Open(t.Context(), btl.Env{
		Env: progress.Env{
			Identity: id, Worlds: framework.NewWorlds(id.Proc.Namespace),
			Self: p.incarnation, Engine: p.engine, Logger: slog.New(slog.DiscardHandler),
		},
		Params: values, Upcall: p,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *pair) close(t *testing.T) {
	for rank, p := range w.procs {
		if p == nil {
			continue
		}
		w.procs[rank] = nil
		if err := p.module.Close(); err != nil {
			t.Error(err)
		}
		p.engine.Close()
	}
}

func (w *pair) connect(t *testing.T, from, to int) btl.Endpoint {
	t.Helper()
	ep, err := w.procs[from].module.Connect(framework.Peer{
		Incarnation: w.procs[to].incarnation,
		Proc:        framework.Proc{Namespace: w.namespace, Rank: uint32(to)},
		Blob:        w.procs[to].module.Blob(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

// poll polls both modules until cond holds.
func (w *pair) poll(t *testing.T, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !cond() {
		if ctx.Err() != nil {
			t.Fatalf("timeout; errors of the paths: %v, %v", w.procs[0].pathDownErrors, w.procs[1].pathDownErrors)
		}
		for _, p := range w.procs {
			p.module.Poll()
		}
	}
}

func (w *pair) send(t *testing.T, ep btl.Endpoint, frame []byte) {
	t.Helper()
	w.poll(t, func() bool {
		b := ep.Reserve(len(frame), btl.RingStart)
		if b == nil {
			return false
		}
		copy(b, frame)
		ep.Commit(len(frame))
		return true
	})
}
