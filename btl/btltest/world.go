package btltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

// world is the processes of a case.
type world struct {
	*kittest.T
	subject   Subject
	job       *kittest.Job
	namespace string
	size      int
	nodes     []*node
	extra     []*node         // opened and closed by a case
	before    map[string]bool // files that were open before
}

// node is one process: an engine, a module, and the protocol above it, which
// keeps what comes up. All is guarded by the engine's lock.
type node struct {
	rank   int
	life   framework.Life
	proc   framework.Proc
	engine *progress.Engine
	module btl.Module
	closed bool

	accepted map[framework.Life]int
	reserved map[framework.Life]bool // since the last connect
	got      []received
	lost     []loss
	// onFrame, when set, takes the place of got.
	onFrame func(from framework.Life, frame []byte) error
	// place, when set, says where payloads belong; placed hears that they are there.
	place  func(header []byte, size int) []byte
	placed func(header []byte, size int) error
	lent   map[framework.Life]int // payloads that are read where they lie
	// news is completed, if somebody waits, by whatever comes up.
	news progress.Completion
	bad  error // what the module did against the calling rules
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
	job := kittest.NewJob(size, 1)
	w := &world{T: t, subject: s, job: job, size: size, before: openFiles(), namespace: job.Namespace}
	t.Cleanup(w.close)
	for rank := range size {
		n, err := w.open(t.Context(), rank, progress.Options{})
		t.Check(err)
		w.nodes = append(w.nodes, n)
	}
	return w
}

// open makes a process. Its module is not added to its engine: the case polls.
func (w *world) open(ctx context.Context, rank int, opt progress.Options) (*node, error) {
	env := w.job.Begin(rank, opt)
	n := &node{rank: rank, proc: env.Identity.Proc, life: env.Self, engine: env.Engine, accepted: map[framework.Life]int{}, reserved: map[framework.Life]bool{}, lent: map[framework.Life]int{}}
	c := w.subject.Component
	params := kittest.Params(c, func(params any) {
		if w.subject.Params != nil {
			w.subject.Params(rank, params)
		}
	})
	var err error
	if n.module, err = c.Open(ctx, btl.Env{Env: env, Params: params, Upcall: n}); err != nil {
		n.engine.Close()
		return nil, fmt.Errorf("open of rank %d: %w", rank, err)
	}
	return n, nil
}

// close ends all processes, and reports what modules did against the rules.
func (w *world) close() error {
	var errs []error
	for _, n := range append(w.nodes, w.extra...) {
		errs = append(errs, n.bad, n.close())
	}
	return errors.Join(errs...)
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

// start has the engine poll the module, and sleep when nothing comes.
func (n *node) start() { n.engine.Add(n.module) }

// peer returns what others need to connect to n.
func (n *node) peer() framework.Peer {
	return framework.Peer{Life: n.life, Proc: n.proc, Blob: n.module.Blob()}
}

// do runs f with the engine's lock held.
func (n *node) do(f func()) {
	n.engine.Lock()
	defer n.engine.Unlock()
	f()
}

func (n *node) connect(to *node) (ep btl.Endpoint, err error) {
	peer := to.peer()
	n.do(func() {
		delete(n.reserved, to.life)
		ep, err = n.module.Connect(peer)
	})
	if err != nil {
		return nil, fmt.Errorf("connect of rank %d with rank %d: %w", n.rank, to.rank, err)
	}
	return &watched{ep, n, to.life}, nil
}

// watched is an endpoint of which the kit knows whether it has opened.
type watched struct {
	btl.Endpoint
	n    *node
	peer framework.Life
}

func (e *watched) Unwrap() any { return e.Endpoint }

func (e *watched) Reserve(n int) []byte {
	b := e.Endpoint.Reserve(n)
	if b != nil {
		e.n.reserved[e.peer] = true
	}
	return b
}

func (n *node) reach(to *node) (err error) {
	peer := to.peer()
	n.do(func() { err = n.module.Reach(peer) })
	return err
}

func (n *node) poll() {
	if !n.closed {
		n.do(func() { n.module.Poll() })
	}
}

// Accept implements btl.Receiver.
func (n *node) Accept(peer framework.Life) btl.Inbound {
	n.accepted[peer]++
	return &path{n: n, from: peer}
}

// Limits: the kit's processes have the same parameters, and so no reason for it.
func (n *node) Limits(framework.Life, int, int) {}

// PathDown implements btl.Receiver.
func (n *node) PathDown(peer framework.Life, err error) { n.lose(loss{peer, err, false}) }

// PeerGone implements btl.Receiver.
func (n *node) PeerGone(peer framework.Life, err error) { n.lose(loss{peer, err, true}) }

func (n *node) lose(l loss) {
	if errors.Is(l.err, framework.ErrPeerClosed) != l.gone {
		n.bad = errors.Join(n.bad, fmt.Errorf("rank %d: a process that has closed is PeerGone, anything else PathDown: %w", n.rank, l.err))
	}
	if errors.Is(l.err, btl.ErrNeverOpened) && n.reserved[l.peer] {
		n.bad = errors.Join(n.bad, fmt.Errorf("rank %d: a path on which Reserve has succeeded can't have never opened: %w", n.rank, l.err))
	}
	if n.lent[l.peer] > 0 {
		n.bad = errors.Join(n.bad, fmt.Errorf("rank %d: %d payloads were not free when it was said that the path had ended: %w", n.rank, n.lent[l.peer], l.err))
	}
	n.lost = append(n.lost, l)
	n.notify()
}

func (n *node) notify() {
	if !n.news.Done() {
		n.engine.Complete(&n.news)
	}
}

// path is the protocol's end of a path to a node.
type path struct {
	n     *node
	from  framework.Life
	ended bool
}

// Frame implements btl.Inbound.
func (p *path) Frame(frame []byte) error {
	n := p.n
	if p.ended {
		n.bad = errors.Join(n.bad, fmt.Errorf("rank %d: a frame came on a path that had ended with an error", n.rank))
	}
	if len(frame) == 0 || len(frame) > n.module.Caps().FrameLimit {
		n.bad = errors.Join(n.bad, fmt.Errorf("rank %d: a frame of %d bytes came up", n.rank, len(frame)))
	}
	defer n.notify()
	if n.onFrame != nil {
		err := n.onFrame(p.from, frame)
		p.ended = err != nil
		return err
	}
	n.got = append(n.got, received{p.from, bytes.Clone(frame)})
	return nil
}

// pair returns a sender and a receiver: two processes if the module reaches
// another one, else a process and itself.
func (w *world) pair() (a, b *node, err error) {
	a = w.nodes[0]
	if len(w.nodes) > 1 {
		b = w.nodes[1]
		if err = a.reach(b); err == nil {
			return a, b, nil
		}
	}
	if self := a.reach(a); self != nil {
		return nil, nil, fmt.Errorf("it reaches nobody: another process: %v; itself: %w", err, self)
	}
	return a, a, nil
}

// apart is pair for cases that need two processes.
func (w *world) apart() (a, b *node, err error) {
	a, b, err = w.pair()
	if err == nil && a == b {
		err = fmt.Errorf("%w: it serves the process itself only", ErrSkip)
	}
	return a, b, err
}

// until polls all nodes that are not held until cond holds. cond is called
// without locks.
func (w *world) until(ctx context.Context, what string, cond func() bool, held ...*node) error {
	for !cond() {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		for _, n := range w.nodes {
			skip := false
			for _, h := range held {
				skip = skip || h == n
			}
			if !skip {
				n.poll()
			}
		}
		runtime.Gosched()
	}
	return nil
}

// greeted returns a pair with a path from a to b by which a frame has come.
func (w *world) greeted(ctx context.Context) (a, b *node, ep btl.Endpoint, err error) {
	if a, b, err = w.pair(); err != nil {
		return nil, nil, nil, err
	}
	if ep, err = a.connect(b); err != nil {
		return nil, nil, nil, err
	}
	first := fill(0, 40)
	if err = w.send(ctx, a, ep, first); err == nil {
		err = w.expect(ctx, b, a, [][]byte{first})
	}
	return a, b, ep, err
}

// try sends a frame if the endpoint takes it now.
func (n *node) try(ep btl.Endpoint, frame []byte) (sent bool, err error) {
	n.do(func() {
		b := ep.Reserve(len(frame))
		if b == nil {
			return
		}
		if len(b) != len(frame) {
			err = fmt.Errorf("Reserve(%d) returned %d bytes", len(frame), len(b))
			return
		}
		copy(b, frame)
		ep.Commit(len(frame))
		sent = true
	})
	return sent, err
}

// send sends a frame, polling everybody while it would block.
func (w *world) send(ctx context.Context, n *node, ep btl.Endpoint, frame []byte) error {
	var failed error
	err := w.until(ctx, fmt.Sprintf("send of %d bytes", len(frame)), func() bool {
		sent, err := n.try(ep, frame)
		failed = err
		if err == nil && len(n.lost) > 0 {
			failed = fmt.Errorf("the path was lost: %w", n.lost[0].err)
		}
		return sent || failed != nil
	})
	return errors.Join(err, failed)
}

// patience is how many polls longer expect looks when a wrong frame has come:
// what follows tells a frame that was lost from one that was overtaken.
const patience = 1000

// expect polls until n has received all of frames from a process, and nothing else.
func (w *world) expect(ctx context.Context, n *node, from *node, frames [][]byte, held ...*node) error {
	right, left := 0, patience
	at := func() (done bool) {
		n.do(func() {
			come := min(len(n.got), len(frames))
			for right < come && bytes.Equal(n.got[right].frame, frames[right]) {
				right++
			}
			if right < come {
				left--
			}
			done = len(n.got) >= len(frames) || len(n.lost) > 0 || left == 0
		})
		return done
	}
	if err := w.until(ctx, fmt.Sprintf("rank %d waits for %d frames", n.rank, len(frames)), at, held...); err != nil {
		return fmt.Errorf("%w; %d came", err, right)
	}
	return n.compare(from, frames)
}

// compare takes what n has received and compares it with frames.
func (n *node) compare(from *node, frames [][]byte) (err error) {
	n.do(func() {
		got := n.got
		n.got = nil
		for i := range frames {
			if i >= len(got) {
				err = fmt.Errorf("rank %d: %d frames came instead of %d; lost: %v", n.rank, len(got), len(frames), n.lost)
				return
			}
			if got[i].from != from.life {
				err = fmt.Errorf("rank %d: frame %d came from process %v, not from %v", n.rank, i, got[i].from, from.life)
				return
			}
			if !bytes.Equal(got[i].frame, frames[i]) {
				err = fmt.Errorf("rank %d: %w", n.rank, wrong(got, frames, i))
				return
			}
		}
		if len(got) > len(frames) {
			err = fmt.Errorf("rank %d: %d frames came instead of %d", n.rank, len(got), len(frames))
		}
		if err == nil && n.accepted[from.life] == 0 && len(frames) > 0 {
			err = fmt.Errorf("rank %d: frames came without Accept", n.rank)
		}
	})
	return err
}

// wrong says what happened to frame i, which is the first that is not as it was
// sent.
func wrong(got []received, frames [][]byte, i int) error {
	came := slices.ContainsFunc(got[i:], func(r received) bool { return bytes.Equal(r.frame, frames[i]) })
	switch j := slices.IndexFunc(frames, func(f []byte) bool { return bytes.Equal(f, got[i].frame) }); {
	case j >= 0 && j < i:
		return fmt.Errorf("frame %d came twice", j)
	case j > i && came:
		return fmt.Errorf("frame %d came after frame %d", i, j)
	case j > i:
		return fmt.Errorf("frame %d is missing: frame %d came in its place", i, j)
	}
	return fmt.Errorf("frame %d: got %x (the first of %d bytes), want %x (of %d)", i,
		head(got[i].frame), len(got[i].frame), head(frames[i]), len(frames[i]))
}

func head(b []byte) []byte { return b[:min(len(b), 16)] }

// fill makes frame number k of n bytes. Some look like small numbers, such as a
// module's own bookkeeping.
func fill(k, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		if k%3 == 0 {
			b[i] = byte(i & 1 * (k/3 + 1) % 4)
		} else {
			b[i] = byte(k*7 + i*13 + i>>8)
		}
	}
	return b
}
