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

// world is the processes of a case.
type world struct {
	*kittest.T
	subject Subject
	job     *kittest.Job
	nodes   []*node
	before  map[string]bool // files that were open before
}

// node is one process: an engine, a module, and the protocol above it, which
// keeps what comes up. All is guarded by the engine's lock.
type node struct {
	w      *world
	rank   int
	peer   framework.Peer // what others need to connect
	engine *progress.Engine
	module btl.Module
	closed bool

	paths map[framework.Life]*path // the last one to each process
	got   []received
	lost  []loss
	// onFrame, when set, takes the place of got.
	onFrame func(from framework.Life, frame []byte) error
	// place, when set, says where payloads belong; placed hears that they are there.
	place  func(header []byte, size int) []byte
	placed func(header []byte, size int) error
	// news is completed, if somebody waits, by whatever comes up.
	news progress.Completion
}

type received struct {
	from  framework.Life
	frame []byte
}

// loss is a path that is down, or a peer that is gone.
type loss struct {
	peer framework.Life
	err  error
	gone bool
}

func newWorld(t *kittest.T, s Subject, size int) *world {
	w := &world{T: t, subject: s, job: kittest.NewJob(size, 1), before: openFiles()}
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

// open makes a process, another one of its rank if there is one. Its module is not
// added to its engine: the case polls.
func (w *world) open(rank int, opt progress.Options) *node {
	env, c := w.job.Begin(rank, opt), w.subject.Component
	n := &node{w: w, rank: rank, engine: env.Engine, paths: map[framework.Life]*path{}}
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
		w.Fatalf("open of rank %d: %w", rank, err)
	}
	n.peer = framework.Peer{Life: env.Self, Proc: env.Identity.Proc, Blob: n.module.Blob()}
	w.nodes = append(w.nodes, n)
	return n
}

func (n *node) close() error {
	if n.closed {
		return nil
	}
	n.closed = true
	n.engine.Remove(n.module)
	err := n.module.Close()
	n.engine.Close()
	if err != nil {
		return fmt.Errorf("close of rank %d: %w", n.rank, err)
	}
	return nil
}

// do runs f with the engine's lock held.
func (n *node) do(f func()) {
	n.engine.Lock()
	defer n.engine.Unlock()
	f()
}

func (n *node) reach(to *node) (err error) {
	n.do(func() { err = n.module.Reach(to.peer) })
	return err
}

func (n *node) poll() {
	if !n.closed {
		n.do(func() { n.module.Poll() })
	}
}

// pollAll polls all processes that are not held.
func (w *world) pollAll(held ...*node) {
	for _, n := range w.nodes {
		if !slices.Contains(held, n) {
			n.poll()
		}
	}
}

// until polls all processes that are not held until cond holds, which is called with
// n's lock held.
func (n *node) until(what string, cond func() bool, held ...*node) {
	n.w.Until(fmt.Sprintf("rank %d: %s", n.rank, what), func() (done bool) {
		if n.do(func() { done = cond() }); !done {
			n.w.pollAll(held...)
		}
		return done
	})
}

// pair returns a sender and a receiver: two processes if the module reaches
// another one, else a process and itself.
func (w *world) pair() (a, b *node) {
	a, b = w.nodes[0], w.nodes[1]
	far := a.reach(b)
	if far == nil {
		return a, b
	}
	if self := a.reach(a); self != nil {
		w.Fatalf("it reaches nobody: another process: %w; itself: %w", far, self)
	}
	return a, a
}

// apart is pair for cases that need two processes.
func (w *world) apart() (a, b *node) {
	if a, b = w.pair(); a == b {
		w.Skipf("it serves only the process itself")
	}
	return a, b
}

// path returns an open path between a pair.
func (w *world) path() *path {
	a, b := w.pair()
	return a.greet(b)
}

// Accept implements btl.Receiver.
func (n *node) Accept(peer framework.Life) btl.Inbound { return &inbound{n: n, from: peer} }

// Limits: the kit's processes have the same parameters, and so no reason for it.
func (n *node) Limits(framework.Life, int, int) {}

// PathDown implements btl.Receiver.
func (n *node) PathDown(peer framework.Life, err error) { n.lose(loss{peer, err, false}) }

// PeerGone implements btl.Receiver.
func (n *node) PeerGone(peer framework.Life, err error) { n.lose(loss{peer, err, true}) }

// Card implements btl.CardHolder: the kit's processes know one another.
func (n *node) Card(peer framework.Life) (framework.Peer, bool) {
	for _, other := range n.w.nodes {
		if other.peer.Life == peer {
			return other.peer, true
		}
	}
	return framework.Peer{}, false
}

func (n *node) lose(l loss) {
	if errors.Is(l.err, framework.ErrPeerClosed) != l.gone {
		n.w.Errorf("rank %d: a process that has closed is PeerGone, anything else PathDown: %w", n.rank, l.err)
	}
	p := n.paths[l.peer]
	if p != nil && p.opened && errors.Is(l.err, btl.ErrNeverOpened) {
		n.w.Errorf("rank %d: a path on which Reserve has succeeded can't have never opened: %w", n.rank, l.err)
	}
	if p != nil && p.lent > 0 {
		n.w.Errorf("rank %d: %d payloads were not free when the end of the path was reported: %w", n.rank, p.lent, l.err)
	}
	n.lost = append(n.lost, l)
	n.notify()
}

// missing returns why there is no path between n and peer any more, or what else n has lost;
// nil: nothing. That another process has closed its session, a module may say at any time
// afterwards.
func (n *node) missing(peer *node) error {
	for _, l := range n.lost {
		if l.peer == peer.peer.Life || !l.gone {
			return l.err
		}
	}
	return nil
}

// loses waits until n has lost its path to peer, which try tries with the lock held, and
// returns what was said of it, once.
func (n *node) loses(peer framework.Life, try func()) error {
	n.until("the path is lost", func() bool { try(); return len(n.lost) > 0 })
	var lost []loss
	n.do(func() { lost, n.lost = n.lost, nil })
	err := lost[0].err
	var te *framework.TransportError
	switch {
	case len(lost) != 1:
		n.w.Fatalf("rank %d: %d upcalls reported an end, want one: %v", n.rank, len(lost), lost)
	case lost[0].peer != peer:
		n.w.Fatalf("rank %d: lost %v, want %v", n.rank, lost[0].peer, peer)
	case !errors.As(err, &te) || te.Component == "" || te.Op == "" || te.Err == nil:
		n.w.Fatalf("rank %d: lost with %v, which is not a complete TransportError", n.rank, err)
	}
	return err
}

// nothing is what one tries who only waits.
func nothing() {}

func (n *node) notify() {
	if !n.news.Done() {
		n.engine.Complete(&n.news)
	}
}

// inbound is the protocol's end of a path to a node.
type inbound struct {
	n     *node
	from  framework.Life
	ended bool
}

// Frame implements btl.Inbound.
func (p *inbound) Frame(frame []byte) (err error) {
	n := p.n
	if p.ended {
		n.w.Errorf("rank %d: a frame came on a path that had ended with an error", n.rank)
	}
	if len(frame) == 0 || len(frame) > n.module.Caps().FrameLimit {
		n.w.Errorf("rank %d: a frame of %d bytes came up", n.rank, len(frame))
	}
	if n.onFrame != nil {
		err = n.onFrame(p.from, frame)
	} else {
		n.got = append(n.got, received{p.from, bytes.Clone(frame)})
	}
	p.ended = err != nil
	n.notify()
	return err
}

// take takes what n has received, which must be frames from a process.
func (n *node) take(from *node, frames [][]byte) {
	var got []received
	var lost []loss
	n.do(func() { got, n.got, lost = n.got, nil, n.lost })
	for i := range min(len(got), len(frames)) {
		if got[i].from != from.peer.Life {
			n.w.Fatalf("rank %d: frame %d came from process %v, not from %v", n.rank, i, got[i].from, from.peer.Life)
		}
		if !bytes.Equal(got[i].frame, frames[i]) {
			n.w.Fatalf("rank %d: %s", n.rank, wrong(got, frames, i))
		}
	}
	if len(got) != len(frames) {
		if err := context.Cause(n.w.Context()); err != nil {
			lost = append(lost, loss{err: err})
		}
		why := ""
		for _, l := range lost {
			why += "; " + l.err.Error()
		}
		n.w.Fatalf("rank %d: %d frames came instead of %d%s", n.rank, len(got), len(frames), why)
	}
}

// wrong says what happened to frame i, which is the first that is not as it was
// sent.
func wrong(got []received, frames [][]byte, i int) string {
	came := slices.ContainsFunc(got[i:], func(r received) bool { return bytes.Equal(r.frame, frames[i]) })
	switch j := slices.IndexFunc(frames, func(f []byte) bool { return bytes.Equal(f, got[i].frame) }); {
	case j >= 0 && j < i:
		return fmt.Sprintf("frame %d came twice", j)
	case j > i && came:
		return fmt.Sprintf("frame %d came after frame %d", i, j)
	case j > i:
		return fmt.Sprintf("frame %d is missing: frame %d came in its place", i, j)
	}
	return fmt.Sprintf("frame %d: got %.16x (the first of %d bytes), want %.16x (of %d)", i, got[i].frame, len(got[i].frame), frames[i], len(frames[i]))
}
