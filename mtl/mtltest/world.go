package mtltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

// world is the processes of a case.
type world struct {
	*kittest.T
	subject   Subject
	namespace string
	size      int
	nodes     []*node
	nonces    uint64
	extra     []*node // opened by a case
}

// node is one process: an engine, a module, and the protocol above it. All is
// guarded by the engine's lock.
type node struct {
	w      *world
	rank   int
	life   framework.Life
	proc   framework.Proc
	engine *progress.Engine
	module mtl.Module
	closed bool

	control [][]byte
	// news is completed, if somebody waits, by whatever happens.
	news    progress.Completion
	polling bool
	bad     error // what the module did against the calling rules
}

var worlds atomic.Uint64 // makes namespaces unique

func newWorld(t *kittest.T, s Subject, size int) *world {
	w := &world{T: t, subject: s, size: size, namespace: fmt.Sprintf("mtltest-%d-%d", time.Now().UnixNano(), worlds.Add(1))}
	t.Cleanup(w.close)
	for rank := range size {
		n, err := w.open(t.Context(), rank, s.Component, progress.Options{})
		t.Check(err)
		w.nodes = append(w.nodes, n)
	}
	return w
}

// open makes a process. Its module is not added to its engine: the case polls.
func (w *world) open(ctx context.Context, rank int, c mtl.Component, opt progress.Options) (*node, error) {
	locals := make([]uint32, w.size)
	for i := range locals {
		locals[i] = uint32(i)
	}
	w.nonces++
	proc := framework.Proc{Namespace: w.namespace, Rank: uint32(rank)}
	n := &node{
		w: w, rank: rank, proc: proc,
		life:   framework.Life{ID: framework.MakeProcID(0, uint32(rank)), Nonce: framework.NamespaceHash(fmt.Sprint(proc, w.nonces))},
		engine: progress.New(opt),
	}
	params := c.Params()
	if params != nil {
		framework.FillDefaults(params)
		if w.subject.Params != nil {
			w.subject.Params(rank, params)
		}
		if c == w.subject.Other && w.subject.OtherParams != nil {
			w.subject.OtherParams(params)
		}
	}
	var err error
	n.module, err = c.Open(ctx, mtl.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: proc, Size: w.size, LocalRank: rank, LocalSize: w.size, Locals: locals},
			Worlds:   framework.NewWorlds(w.namespace),
			Self:     n.life,
			Engine:   n.engine,
			Logger:   slog.New(slog.DiscardHandler),
		},
		Params: params,
		Upcall: n,
	})
	if err != nil {
		n.engine.Close()
		return nil, fmt.Errorf("open of rank %d: %w", rank, err)
	}
	return n, nil
}

// close ends all processes, and reports what modules did against the rules.
func (w *world) close() error {
	var errs []error
	for _, n := range append(w.nodes, w.extra...) {
		errs = append(errs, n.close())
		n.do(func() { errs = append(errs, n.bad) })
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

func (n *node) fault(format string, args ...any) {
	n.bad = errors.Join(n.bad, fmt.Errorf("rank %d: %s", n.rank, fmt.Sprintf(format, args...)))
}

// to returns n's endpoint of a process.
func (n *node) to(peer *node) (e mtl.Endpoint, err error) {
	p := peer.peer()
	n.do(func() { e, err = n.module.Connect(p) })
	if err != nil {
		err = fmt.Errorf("connect of rank %d with rank %d: %w", n.rank, peer.rank, err)
	}
	return e, err
}

// Poll implements progress.Source for engines that poll by themselves.
func (n *node) Poll() int {
	n.polling = true
	defer func() { n.polling = false }()
	return n.module.Poll()
}

// Unwrap lets the engine find how the module is awaited.
func (n *node) Unwrap() any { return n.module }

func (n *node) poll() (events int) {
	n.do(func() {
		if !n.closed {
			events = n.Poll()
		}
	})
	return events
}

// Control implements mtl.Receiver.
func (n *node) Control(data []byte) {
	if !n.polling {
		n.fault("a control message came up outside of Poll")
	}
	n.control = append(n.control, bytes.Clone(data))
	n.notify()
}

// Endpoint implements mtl.Receiver: in these worlds the rank of a communicator is
// that of the process.
func (n *node) Endpoint(_ uint32, source int) (mtl.Endpoint, bool) {
	if !n.polling {
		n.fault("Endpoint was asked outside of Poll")
	}
	if source < 0 || source >= len(n.w.nodes) {
		return 0, false
	}
	to, err := n.module.Connect(n.w.nodes[source].peer())
	return to, err == nil
}

func (n *node) notify() {
	if !n.news.Done() {
		n.engine.Complete(&n.news)
	}
}

// operation is one operation of a node.
type operation struct {
	mtl.Op
	n    *node
	over bool // Done was called
	done bool // or it was done when the call returned
	buf  []byte
}

func (n *node) operation() *operation {
	o := &operation{n: n}
	o.Owner = o
	return o
}

// Done implements mtl.Owner.
func (o *operation) Done(op *mtl.Op) {
	switch {
	case !o.n.polling:
		o.n.fault("Done was called outside of Poll")
	case op != &o.Op:
		o.n.fault("Done of another operation was called")
	case o.over || o.done:
		o.n.fault("Done was called for what is over: %+v", op.Result)
	case o.n.closed:
		o.n.fault("Done was called after Close")
	}
	o.over = true
	o.n.notify()
}

func (o *operation) ended() (ended bool) {
	o.n.do(func() { ended = o.over || o.done })
	return ended
}

// envelope names what send and receive need beyond the buffer.
type envelope struct {
	cid  uint32
	tag  int32
	mode mtl.Mode
}

func (n *node) send(to *node, m envelope, buf []byte) (*operation, error) {
	e, err := n.to(to)
	if err != nil {
		return nil, err
	}
	o := n.operation()
	n.do(func() {
		o.done, err = n.module.Send(&o.Op, e, mtl.Envelope{CID: m.cid, Source: int32(n.rank), Tag: m.tag}, buf, m.mode)
		if o.done && m.mode == mtl.Synchronous {
			n.fault("a synchronous send was done when it was called")
		}
	})
	if err != nil {
		return nil, fmt.Errorf("send of %d bytes from rank %d to rank %d: %w", len(buf), n.rank, to.rank, err)
	}
	return o, nil
}

// receive posts a receive; from nil: from any source.
func (n *node) receive(from *node, m envelope, buf []byte) (*operation, error) {
	o, e, ep, err := n.inquiry(from, m)
	if err != nil {
		return nil, err
	}
	o.buf = buf
	n.do(func() { err = n.module.Recv(&o.Op, ep, e, buf) })
	if err != nil {
		return nil, fmt.Errorf("receive at rank %d: %w", n.rank, err)
	}
	return o, nil
}

func (n *node) inquiry(from *node, m envelope) (o *operation, e mtl.Envelope, ep mtl.Endpoint, err error) {
	o = n.operation()
	e = mtl.Envelope{CID: m.cid, Source: mtl.AnySource, Tag: m.tag}
	if from != nil {
		e.Source = int32(from.rank)
		ep, err = n.to(from)
	}
	return o, e, ep, err
}

// probe looks once.
func (n *node) probe(ctx context.Context, from *node, m envelope, claim bool) (*operation, error) {
	o, e, ep, err := n.inquiry(from, m)
	if err != nil {
		return nil, err
	}
	n.do(func() { err = n.module.Probe(&o.Op, ep, e, claim) })
	if err == nil {
		err = n.w.until(ctx, "a probe", o.ended)
	}
	return o, errors.Join(err, o.Err)
}

// find probes until something is found.
func (n *node) find(ctx context.Context, from *node, m envelope, claim bool) (*operation, error) {
	for {
		o, err := n.probe(ctx, from, m, claim)
		if err != nil || o.Found {
			return o, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the message is never found: %w", context.Cause(ctx))
		}
	}
}

// until polls all nodes that are not held until cond holds. cond is called
// without locks.
func (w *world) until(ctx context.Context, what string, cond func() bool, held ...*node) error {
	for !cond() {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		w.pollAll(held...)
	}
	return nil
}

func (w *world) pollAll(held ...*node) {
	for _, n := range w.nodes {
		if !slices.Contains(held, n) {
			n.poll()
		}
	}
	runtime.Gosched()
}

// all polls until every operation is over, and returns what failed.
func (w *world) all(ctx context.Context, ops ...*operation) error {
	i := 0
	err := w.until(ctx, "operations that do not end", func() bool {
		for i < len(ops) && ops[i].ended() {
			i++
		}
		return i == len(ops)
	})
	if err != nil {
		return fmt.Errorf("%w (%d of %d, the first is %d)", err, w.pending(ops), len(ops), i)
	}
	for _, o := range ops {
		if o.Err != nil {
			err = errors.Join(err, fmt.Errorf("rank %d: %w", o.n.rank, o.Err))
		}
	}
	return err
}

func (w *world) pending(ops []*operation) (n int) {
	for _, o := range ops {
		if !o.ended() {
			n++
		}
	}
	return n
}

// quiet polls so often that whatever may come has come, of what was sent before a
// control message from each to each that this exchanges.
func (w *world) quiet(ctx context.Context) error {
	want := make([]int, len(w.nodes))
	for i, n := range w.nodes {
		n.do(func() { want[i] = len(n.control) + len(w.nodes) })
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			o, err := a.sendControl(b, []byte("quiet"))
			if err != nil {
				return err
			}
			if err := w.all(ctx, o); err != nil {
				return err
			}
		}
	}
	return w.until(ctx, "control messages", func() bool {
		for i, n := range w.nodes {
			here := 0
			n.do(func() { here = len(n.control) })
			if here < want[i] {
				return false
			}
		}
		return true
	})
}

func (n *node) sendControl(to *node, data []byte) (*operation, error) {
	e, err := n.to(to)
	if err != nil {
		return nil, err
	}
	o := n.operation()
	n.do(func() { o.done, err = n.module.SendControl(&o.Op, e, data) })
	if err != nil {
		return nil, fmt.Errorf("control message from rank %d to rank %d: %w", n.rank, to.rank, err)
	}
	return o, nil
}

// pattern is n bytes that differ with seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// check says how a received message differs from what was sent.
func (o *operation) check(from *node, tag int32, sent []byte) error {
	switch {
	case o.Err != nil:
		return o.Err
	case o.Canceled:
		return errors.New("the receive was canceled")
	case o.Source != int32(from.rank) || o.Tag != tag || o.Bytes != int64(len(sent)):
		return fmt.Errorf("source %d, tag %d, %d bytes were sent, and source %d, tag %d, %d bytes came", from.rank, tag, len(sent), o.Source, o.Tag, o.Bytes)
	case !bytes.Equal(o.buf[:len(sent)], sent):
		return fmt.Errorf("%d bytes arrived changed", len(sent))
	}
	return nil
}
