package btltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

// world has the processes of a case.
type world struct {
	*kittest.T
	subject Subject
	job     *kittest.Job
	nodes   []*node
	// Files that were open before the case.
	filesBefore map[string]bool
}

// node is one process with an engine, a module and the protocol above it, which records all events.
// The engine's lock guards it.
type node struct {
	world *world
	rank  int
	// Identity for Connect of other processes.
	peer     framework.Peer
	engine   *progress.Engine
	module   btl.Module
	isClosed bool

	latestPaths    map[framework.Incarnation]*path
	receivedFrames []receivedFrame
	losses         []loss
	// onFrame, if set, receives the frames, and receivedFrames stays empty.
	onFrame func(from framework.Incarnation, frame []byte) error
	// placePayload, if set, returns the destinations of payloads. payloadPlaced is called when they are
	// complete.
	placePayload  func(header []byte, size int) []byte
	payloadPlaced func(header []byte, size int) error
	// eventCompletion completes at each event for a sleeping waiter.
	eventCompletion progress.Completion
}

type receivedFrame struct {
	from  framework.Incarnation
	frame []byte
}

// loss is the end of a path or of a peer.
type loss struct {
	peer        framework.Incarnation
	err         error
	hasPeerLeft bool
}

func newWorld(t *kittest.T, s Subject, size int) *world {
	w := &world{T: t, subject: s, job: kittest.NewJob(size, 1), filesBefore: openFiles()}
	w.job.First = s.First
	t.Cleanup(func() error {
		var errs []error
		for _, n := range w.nodes {
			errs = append(errs, n.close())
		}
		return errors.Join(errs...)
	})
	for rank := range size {
		w.open(rank, progress.Options{})
	}
	return w
}

// open opens a process, possibly another one of the same rank. Its module is not added to its
// engine, because the case polls.
func (w *world) open(rank int, opt progress.Options) *node {
	env, c := w.job.Begin(rank, opt), w.subject.Component
	n := &node{world: w, rank: rank, engine: env.Engine, latestPaths: map[framework.Incarnation]*path{}}
	params := kittest.Params(c, func(params any) {
		if w.subject.Params != nil {
			w.subject.Params(rank, params)
		}
	})
	var err error
	if n.module, err = c.Open(w.Context(), btl.Env{Env: env, Params: params, Upcall: n}); err == nil {
		n.module, err = btl.CheckedModule(c.Info().Name, n.module)
	}
	if err != nil {
		n.engine.Close()
		w.Fatalf("open rank %d: %w", rank, err)
	}
	n.peer = framework.Peer{Incarnation: env.Self, Proc: env.Identity.Proc, Blob: n.module.Blob()}
	w.nodes = append(w.nodes, n)
	return n
}

func (n *node) close() error {
	if n.isClosed {
		return nil
	}
	n.isClosed = true
	n.engine.Remove(n.module)
	err := n.module.Close()
	n.engine.Close()
	if err != nil {
		return fmt.Errorf("close rank %d: %w", n.rank, err)
	}
	return nil
}

// locked calls f with the engine's lock held.
func (n *node) locked(f func()) {
	n.engine.Lock()
	defer n.engine.Unlock()
	f()
}

func (n *node) reach(to *node) (err error) {
	n.locked(func() { err = n.module.Reach(to.peer) })
	return err
}

func (n *node) poll() {
	if !n.isClosed {
		n.locked(func() { n.module.Poll() })
	}
}

// pollAll polls all processes except held.
func (w *world) pollAll(held ...*node) {
	for _, n := range w.nodes {
		if !slices.Contains(held, n) {
			n.poll()
		}
	}
}

// until polls all processes except held until cond holds. cond is called with n's lock held.
func (n *node) until(what string, cond func() bool, held ...*node) {
	n.world.Until(fmt.Sprintf("rank %d: %s", n.rank, what), func() (done bool) {
		if n.locked(func() { done = cond() }); !done {
			n.world.pollAll(held...)
		}
		return done
	})
}

// senderAndReceiver returns a sender and a receiver. They are two processes if the module reaches another one,
// and else a process and itself.
func (w *world) senderAndReceiver() (a, b *node) {
	a, b = w.nodes[0], w.nodes[1]
	far := a.reach(b)
	if far == nil {
		return a, b
	}
	if self := a.reach(a); self != nil {
		w.Fatalf("the module reaches no peer: another process: %w; itself: %w", far, self)
	}
	return a, a
}

// twoProcesses is senderAndReceiver for cases that need two processes.
func (w *world) twoProcesses() (a, b *node) {
	if a, b = w.senderAndReceiver(); a == b {
		w.Skipf("the module serves only the process itself")
	}
	return a, b
}

// path returns an open path between a pair.
func (w *world) path() *path {
	a, b := w.senderAndReceiver()
	return a.greet(b)
}

// Accept implements btl.Receiver.
func (n *node) Accept(peer framework.Incarnation) btl.Inbound { return &inbound{node: n, from: peer} }

// Limits implements btl.Receiver. It is not called, because all processes have the same parameters.
func (n *node) Limits(framework.Incarnation, int, int) {}

// PathDown implements btl.Receiver.
func (n *node) PathDown(peer framework.Incarnation, err error) { n.recordLoss(loss{peer, err, false}) }

// PeerChanged implements btl.Receiver.
func (n *node) PeerChanged(ev framework.PeerEvent) {
	if ev.State != framework.Left {
		n.world.Errorf("rank %d: PeerChanged with state %v, want %v", n.rank, ev.State, framework.Left)
	}
	n.recordLoss(loss{ev.Peer, ev.Err, true})
}

// LinkChanged implements btl.Receiver.
func (n *node) LinkChanged(framework.Incarnation, string) {}

// Card implements btl.Receiver.
func (n *node) Card(peer framework.Incarnation) (framework.Peer, bool) {
	for _, other := range n.world.nodes {
		if other.peer.Incarnation == peer {
			return other.peer, true
		}
	}
	return framework.Peer{}, false
}

func (n *node) recordLoss(l loss) {
	if errors.Is(l.err, framework.ErrPeerClosed) != l.hasPeerLeft {
		n.world.Errorf("rank %d: want PeerChanged for a closed process and PathDown otherwise: %w", n.rank, l.err)
	}
	p := n.latestPaths[l.peer]
	if p != nil && p.isOpened && errors.Is(l.err, btl.ErrNeverOpened) {
		n.world.Errorf("rank %d: ErrNeverOpened after a successful Reserve: %w", n.rank, l.err)
	}
	if p != nil && p.lentCount > 0 {
		n.world.Errorf("rank %d: %d payloads were incomplete at the end of the path: %w", n.rank, p.lentCount, l.err)
	}
	n.losses = append(n.losses, l)
	n.notify()
}

// lossOf returns the reason why the path between n and peer or another path of n has ended, or
// nil. It ignores PeerChanged of other processes, which a module may report at any time after their
// end.
func (n *node) lossOf(peer *node) error {
	for _, l := range n.losses {
		if l.peer == peer.peer.Incarnation || !l.hasPeerLeft {
			return l.err
		}
	}
	return nil
}

// awaitLoss waits until n has lost its path to peer, and returns the error, which must be reported
// once. It calls try with the lock held before each poll.
func (n *node) awaitLoss(peer framework.Incarnation, try func()) error {
	n.until("the path is lost", func() bool { try(); return len(n.losses) > 0 })
	var lost []loss
	n.locked(func() { lost, n.losses = n.losses, nil })
	err := lost[0].err
	var te *framework.TransportError
	switch {
	case len(lost) != 1:
		n.world.Fatalf("rank %d: %d upcalls reported an end, want one: %v", n.rank, len(lost), lost)
	case lost[0].peer != peer:
		n.world.Fatalf("rank %d: lost %v, want %v", n.rank, lost[0].peer, peer)
	case !errors.As(err, &te) || te.Component == "" || te.Op == "" || te.Err == nil:
		n.world.Fatalf("rank %d: lost with %v, which is not a complete TransportError", n.rank, err)
	}
	return err
}

// noTry is the try of a case that only waits.
func noTry() {}

func (n *node) notify() {
	if !n.eventCompletion.Done() {
		n.engine.Complete(&n.eventCompletion)
	}
}

// inbound is the protocol's receiver of a path to a node.
type inbound struct {
	node    *node
	from    framework.Incarnation
	isEnded bool
}

// Frame implements btl.Inbound.
func (p *inbound) Frame(frame []byte) (err error) {
	n := p.node
	if p.isEnded {
		n.world.Errorf("rank %d: a frame followed the end of its path", n.rank)
	}
	if len(frame) == 0 || len(frame) > n.module.Caps().FrameLimit {
		n.world.Errorf("rank %d: invalid frame of %d bytes", n.rank, len(frame))
	}
	if n.onFrame != nil {
		err = n.onFrame(p.from, frame)
	} else {
		n.receivedFrames = append(n.receivedFrames, receivedFrame{p.from, bytes.Clone(frame)})
	}
	p.isEnded = err != nil
	n.notify()
	return err
}

// takeFrames removes the frames that n has received, which must be exactly these from one process.
func (n *node) takeFrames(from *node, frames [][]byte) {
	var got []receivedFrame
	var lost []loss
	n.locked(func() { got, n.receivedFrames, lost = n.receivedFrames, nil, n.losses })
	for i := range min(len(got), len(frames)) {
		if got[i].from != from.peer.Incarnation {
			n.world.Fatalf("rank %d: frame %d from process %v, want %v", n.rank, i, got[i].from, from.peer.Incarnation)
		}
		if !bytes.Equal(got[i].frame, frames[i]) {
			n.world.Fatalf("rank %d: %s", n.rank, describeFault(got, frames, i))
		}
	}
	if len(got) != len(frames) {
		if err := context.Cause(n.world.Context()); err != nil {
			lost = append(lost, loss{err: err})
		}
		why := ""
		for _, l := range lost {
			why += "; " + l.err.Error()
		}
		n.world.Fatalf("rank %d: received %d frames, want %d%s", n.rank, len(got), len(frames), why)
	}
}

// describeFault describes the fault of frame i, the first one that differs.
func describeFault(got []receivedFrame, frames [][]byte, i int) string {
	came := slices.ContainsFunc(got[i:], func(r receivedFrame) bool { return bytes.Equal(r.frame, frames[i]) })
	switch j := slices.IndexFunc(frames, func(f []byte) bool { return bytes.Equal(f, got[i].frame) }); {
	case j >= 0 && j < i:
		return fmt.Sprintf("frame %d arrived twice", j)
	case j > i && came:
		return fmt.Sprintf("frame %d arrived after frame %d", i, j)
	case j > i:
		return fmt.Sprintf("frame %d is missing: frame %d arrived instead", i, j)
	}
	return fmt.Sprintf("frame %d: got %.16x (the first of %d bytes), want %.16x (of %d)", i, got[i].frame, len(got[i].frame), frames[i], len(frames[i]))
}
