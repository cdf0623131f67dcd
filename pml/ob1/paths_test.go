package ob1_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// over returns a world with these BTLs, and a communicator of all processes.
func over(t *testing.T, n int, btls ...btl.Component) (*pmltest.World, []pml.Comm) {
	t.Helper()
	return overStack(t, n, pmltest.Stack{PML: ob1.Component(), BTLs: btls})
}

func overStack(t *testing.T, n int, stack pmltest.Stack) (*pmltest.World, []pml.Comm) {
	t.Helper()
	w := pmltest.OpenWorld(t, stack, n)
	return w, w.Comms(t, cid.PolicyAgree)
}

// wait waits for a request that was started with err.
func wait(ctx context.Context, r *pml.Request, err error) error {
	if err == nil {
		_, err = r.Wait(ctx, r.Generation())
	}
	return err
}

// gated refuses paths between two processes, once it is opened.
type gated struct {
	open chan struct{}
	why  error
}

func (g gated) refuse(from, to framework.Proc) error {
	if from == to {
		return nil
	}
	<-g.open
	return g.why
}

var errPicky = errors.New("it refuses this peer")

// Messages of all kinds are queued when the preferred transport refuses. They arrive in order
// by the next one.
func TestPath_PreferredRefuses_NextTransportCarriesQueue(t *testing.T) {
	gate := gated{make(chan struct{}), errPicky}
	first := btltest.NewMemory(btltest.Options{Name: "picky", Exclusivity: 2, EagerLimit: 16 << 10, Refuse: gate.refuse})
	second := btltest.NewMemory(btltest.Options{Name: "patient", Exclusivity: 1, EagerLimit: 256, FrameLimit: 1024})
	w, cs := over(t, 2, first, second)
	ctx := bounded(t)
	sizes := []int{0, 8, 300, 10_000, 100_000, 17, 4096}
	var sent, received []*pml.Request
	posted := make([][]byte, len(sizes))
	for i, n := range sizes {
		posted[i] = make([]byte, n)
		r, err := cs[0].Irecv(pml.Buffer{Bytes: posted[i]}, 1, 3, pml.PointToPoint)
		if err != nil {
			t.Fatal(err)
		}
		received = append(received, r)
	}
	for i, n := range sizes {
		r, err := cs[1].Isend(pml.Buffer{Bytes: bytes.Repeat([]byte{byte(i + 1)}, n)}, 0, 3, pml.PointToPoint, pml.Standard)
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, r)
	}
	close(gate.open)
	for i := range sizes {
		if err := errors.Join(wait(ctx, sent[i], nil), wait(ctx, received[i], nil)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(posted[i], bytes.Repeat([]byte{byte(i + 1)}, sizes[i])) {
			t.Errorf("message %d has the payload of another one", i)
		}
	}
	// Rank 0 has only answered.
	for rank, m := range w.Procs {
		route := m.Module.Route(w.Group()[1-rank].Incarnation)
		if route.Transport != "patient" || len(route.Rejected) != 1 || route.Rejected[0].Name != "picky" || !strings.Contains(route.Rejected[0].Reason, errPicky.Error()) {
			t.Errorf("rank %d: the route is %+v", rank, route)
		}
	}
}

// The errors of queued messages and the route have all reasons, at both ends.
func TestPath_AllRefuse_ErrorHasAllReasons(t *testing.T) {
	gate := gated{make(chan struct{}), errPicky}
	other := gated{gate.open, errors.New("its room is taken")}
	w, cs := over(t, 2,
		btltest.NewMemory(btltest.Options{Name: "picky", Exclusivity: 2, Refuse: gate.refuse}),
		btltest.NewMemory(btltest.Options{Name: "full", Exclusivity: 1, Refuse: other.refuse}))
	r, err := cs[0].Isend(pml.Buffer{Bytes: []byte{1}}, 1, 3, pml.PointToPoint, pml.Standard)
	close(gate.open)
	err = wait(bounded(t), r, err)
	if !errors.Is(err, framework.ErrTransport) || errors.Is(err, framework.ErrPeerClosed) {
		t.Errorf("the send ended with %v", err)
	}
	for _, want := range []string{"picky: ", errPicky.Error(), "full: ", other.why.Error()} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	// The bootstrap reports it to the other process.
	w.Procs[1].Module.PeerChanged(framework.UnreachableEvent(w.Group()[0].Incarnation, fmt.Errorf("%w: %w", framework.ErrPeerDisconnected, err)))
	for rank, m := range w.Procs {
		route := m.Module.Route(w.Group()[1-rank].Incarnation)
		if said := fmt.Sprint(route.Rejected); !route.Failed || route.Transport != "" || !strings.Contains(said, errPicky.Error()) || !strings.Contains(said, other.why.Error()) {
			t.Errorf("rank %d: the route is %+v", rank, route)
		}
	}
}

// Only an answer needed the path, as if the peer had closed its session. Reports show the
// former route.
func TestRoute_OnlyAnswerRefused_HasNotFailed(t *testing.T) {
	var tried atomic.Bool
	picky := btltest.NewMemory(btltest.Options{Name: "picky", Refuse: func(from, to framework.Proc) error {
		if from.Rank != 0 || to.Rank != 1 {
			return nil
		}
		tried.Store(true)
		return errPicky
	}})
	w := pmltest.OpenWorld(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{picky}}, 2)
	cs := w.Comms(t, cid.PolicyLazy)
	in := make([]byte, 1)
	recv, err := cs[0].Irecv(pml.Buffer{Bytes: in}, 1, 3, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	if err := cs[1].Send(ctx, pml.Buffer{Bytes: []byte{7}}, 0, 3, pml.PointToPoint, pml.Standard); err != nil {
		t.Fatal(err)
	}
	if err := wait(ctx, recv, nil); err != nil {
		t.Fatal(err)
	}
	// The answer has this process's index of the communicator.
	for !tried.Load() {
		if ctx.Err() != nil {
			t.Fatal("rank 0 never answered")
		}
		time.Sleep(time.Millisecond)
	}
	route := w.Procs[0].Module.Route(w.Group()[1].Incarnation)
	// Until the refusal is handled.
	for ; route.Transport != ""; route = w.Procs[0].Module.Route(w.Group()[1].Incarnation) {
		if ctx.Err() != nil {
			t.Fatalf("the refusal was not handled: %+v", route)
		}
		time.Sleep(time.Millisecond)
	}
	if route.Failed {
		t.Errorf("the route is %+v", route)
	}
}

func TestPath_NoSpaceForRing_NextTransportCarries(t *testing.T) {
	dir := needs.SmallTmpfs(t, 2*64<<10)
	w, cs := overStack(t, 2, pmltest.Stack{
		PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.Component(), btltest.NewMemory(btltest.Options{})},
		Set: map[string]string{"btl.shm.dir": dir, "btl.shm.fallback_dir": ""},
	})
	ctx := bounded(t)
	if err := pmltest.Each(cs, func(rank int, c pml.Comm) error {
		out, in := []byte{byte(rank)}, make([]byte, 1)
		send, err := c.Isend(pml.Buffer{Bytes: out}, 1-rank, 1, pml.PointToPoint, pml.Standard)
		if err != nil {
			return err
		}
		_, err = c.Recv(ctx, pml.Buffer{Bytes: in}, 1-rank, 1, pml.PointToPoint)
		return errors.Join(err, wait(ctx, send, nil))
	}); err != nil {
		t.Fatal(err)
	}
	route := w.Procs[0].Module.Route(w.Group()[1].Incarnation)
	if said := fmt.Sprint(route.Rejected); route.Transport != "memory" || !strings.Contains(said, "the peer refused: \"no space for a segment: need 64 KiB, free 0 KiB; enlarge the file system (docker: --shm-size) or set btl.shm.dir\"") {
		t.Errorf("the route is %+v", route)
	}
}

// Neither end reports that the other one has left.
func TestPath_Fails_BothEndsReturnErrTransport(t *testing.T) {
	_, cs := over(t, 2, btlfault.Wrap(btltest.NewMemory(btltest.Options{}), btlfault.Plan{KillAfter: 20}))
	ctx := bounded(t)
	pmltest.Each(cs, func(rank int, c pml.Comm) (err error) {
		b := pml.Buffer{Bytes: make([]byte, 8)}
		for err == nil {
			if err = c.Send(ctx, b, 1-rank, 1, pml.PointToPoint, pml.Standard); err == nil {
				_, err = c.Recv(ctx, b, 1-rank, 1, pml.PointToPoint)
			}
		}
		if !errors.Is(err, framework.ErrTransport) || errors.Is(err, framework.ErrPeerClosed) {
			t.Errorf("rank %d: %v", rank, err)
		}
		return nil
	})
}

func TestPeer_Closes_OperationsReturnErrPeerClosed(t *testing.T) {
	w, cs := over(t, 2, btltest.NewMemory(btltest.Options{}))
	ctx := bounded(t)
	b := pml.Buffer{Bytes: make([]byte, 8)}
	last, err := cs[1].Isend(b, 0, 2, pml.PointToPoint, pml.Standard)
	if err := wait(ctx, last, err); err != nil {
		t.Fatal(err)
	}
	send, err := cs[0].Isend(b, 1, 1, pml.PointToPoint, pml.Synchronous)
	if err != nil {
		t.Fatal(err)
	}
	// Closes its modules, as the end of a session does.
	if err := w.Kill(1); err != nil {
		t.Fatal(err)
	}
	if err := wait(ctx, send, nil); !errors.Is(err, framework.ErrPeerClosed) || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("a send to a process that closes: %v", err)
	}
	if _, err := cs[0].Recv(ctx, b, 1, 2, pml.PointToPoint); err != nil {
		t.Errorf("receive of an earlier message: %v", err)
	}
	if _, err := cs[0].Recv(ctx, b, 1, 2, pml.PointToPoint); !errors.Is(err, framework.ErrPeerClosed) {
		t.Errorf("a receive from a process that has closed: %v", err)
	}
}

// The transport reports the close before the bootstrap can report the end of the process.
func TestPeer_ClosesAsItFails_OperationsReturnErrProcFailed(t *testing.T) {
	w, cs := over(t, 2, btltest.NewMemory(btltest.Options{}))
	ctx := bounded(t)
	b := pml.Buffer{Bytes: make([]byte, 8)}
	send, err := cs[0].Isend(b, 1, 1, pml.PointToPoint, pml.Synchronous)
	if err != nil {
		t.Fatal(err)
	}
	recv, err := cs[0].Irecv(b, 1, 2, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	// Closes its modules, as the end of a session does.
	if err := w.Kill(1); err != nil {
		t.Fatal(err)
	}
	// Deferred functions run, and the panic is printed.
	time.Sleep(50 * time.Millisecond)
	w.Procs[0].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "exit status 2"))
	for what, r := range map[string]*pml.Request{"send": send, "receive": recv} {
		if err := wait(ctx, r, nil); !errors.Is(err, framework.ErrProcFailed) || errors.Is(err, framework.ErrPeerClosed) {
			t.Errorf("a %s: %v", what, err)
		}
	}
}

// Neither end copies the payload of a contiguous buffer.
func TestPipeline_GatherAndPlace_CopyNothing(t *testing.T) {
	net := btltest.NewMemory(btltest.Options{NoRead: true, Step: 3000})
	_, cs := over(t, 2, net)
	ctx := bounded(t)
	const size = 1 << 20
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	got := make([]byte, size)
	r, err := cs[1].Irecv(pml.Buffer{Bytes: got}, 0, 1, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cs[0].Send(ctx, pml.Buffer{Bytes: sent}, 1, 1, pml.PointToPoint, pml.Standard), wait(ctx, r, nil)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("the message differs")
	}
	if gathered, placed := net.Counts(); gathered < 4 || placed != gathered {
		t.Errorf("%d frames were gathered and %d placed", gathered, placed)
	}
}

// bare hides the optional abilities of modules, such as PeerPoller and Forgetter.
type bare struct{ btl.Component }

func (c bare) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m, err := c.Component.Open(ctx, env)
	return struct{ btl.Module }{m}, err
}

// The peer of a large message fails while the payload is transferred byte by byte.
func TestPipeline_PeerFails_BufferIsReturned(t *testing.T) {
	for _, victim := range []int{0, 1} {
		t.Run(fmt.Sprintf("rank %d survives", 1-victim), func(t *testing.T) {
			net := btltest.NewMemory(btltest.Options{NoRead: true, Step: 1})
			w, cs := over(t, 2, bare{net})
			ctx := bounded(t)
			bufs := [2][]byte{bytes.Repeat([]byte{1}, 1<<20), make([]byte, 1<<20)}
			r, err := cs[1].Irecv(pml.Buffer{Bytes: bufs[1]}, 0, 1, pml.PointToPoint)
			if err != nil {
				t.Fatal(err)
			}
			s, err := cs[0].Isend(pml.Buffer{Bytes: bufs[0]}, 1, 1, pml.PointToPoint, pml.Standard)
			if err != nil {
				t.Fatal(err)
			}
			for gathered := int64(0); gathered == 0; gathered, _ = net.Counts() {
				if ctx.Err() != nil {
					t.Fatal("nothing is gathered")
				}
			}
			survivor := 1 - victim
			w.Procs[survivor].Module.PeerChanged(framework.FailedEvent(w.Group()[victim].Incarnation, "signal: killed"))
			if err := wait(ctx, [2]*pml.Request{s, r}[survivor], nil); !errors.Is(err, framework.ErrProcFailed) {
				t.Fatal(err)
			}
			mine := bufs[survivor]
			// The race detector finds any read.
			for i := range mine {
				mine[i] = 0xaa
			}
			for range 1000 {
				for _, p := range w.Procs {
					p.Engine.Lock()
					p.Engine.Progress()
					p.Engine.Unlock()
				}
			}
			if !bytes.Equal(mine, bytes.Repeat([]byte{0xaa}, len(mine))) {
				t.Error("a buffer was changed after the end of its receive")
			}
		})
	}
}

// A process that has opened no path reports the incoming one.
func TestStats_OnlyReceives_HasTransport(t *testing.T) {
	w, cs := over(t, 2, self.Component(), shm.Component())
	r, err := cs[1].Irecv(pml.Buffer{Bytes: make([]byte, 10)}, 0, 3, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := cs[0].Send(bounded(t), pml.Buffer{Bytes: []byte("one way")}, 1, 3, pml.PointToPoint, pml.Standard); err != nil {
		t.Fatal(err)
	}
	if err := wait(bounded(t), r, nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range w.Procs {
		stats := p.Module.Stats()
		if len(stats) != 1 || stats[0].Transport != "shm" {
			t.Errorf("rank %d: %+v", p.Rank, stats)
		}
	}
}
