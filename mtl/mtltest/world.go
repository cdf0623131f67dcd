package mtltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

// world is the processes of a case.
type world struct {
	*kittest.T
	subject Subject
	job     *kittest.Job
	nodes   []*node // by rank
	opened  []*node // those that were replaced, too
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
	news     progress.Completion
	polling  bool
	receives int
	dead     map[int]bool // ranks that are forgotten
	keeper   mtl.Keeper
	bad      error // what the module did against the calling rules
}

func newWorld(t *kittest.T, s Subject, size int) *world {
	w := &world{T: t, subject: s, job: kittest.NewJob(size, 1)}
	w.job.First = s.First
	t.Cleanup(w.close)
	for rank := range size {
		w.nodes = append(w.nodes, w.open(rank, s.Component, progress.Options{}))
	}
	return w
}

// open makes a process. Its module is not added to its engine: the case polls.
func (w *world) open(rank int, c mtl.Component, opt progress.Options) *node {
	env := w.job.Begin(rank, opt)
	n := &node{w: w, rank: rank, proc: env.Identity.Proc, life: env.Self, engine: env.Engine}
	params := kittest.Params(c, func(params any) {
		if w.subject.Params != nil {
			w.subject.Params(rank, params)
		}
		if c == w.subject.Other && w.subject.OtherParams != nil {
			w.subject.OtherParams(params)
		}
	})
	var err error
	if n.module, err = c.Open(w.Context(), mtl.Env{Env: env, Params: params, Upcall: n}); err == nil {
		n.module, err = mtl.CheckedModule(c.Info().Name, n.module)
	}
	if err != nil {
		n.engine.Close()
		w.Fatalf("open of rank %d: %w", rank, err)
	}
	w.opened = append(w.opened, n)
	return n
}

// reopen has a process close its module and open another one.
func (w *world) reopen(rank int, opt progress.Options) *node {
	w.Check(w.nodes[rank].close())
	w.nodes[rank] = w.open(rank, w.subject.Component, opt)
	return w.nodes[rank]
}

// close ends all processes, and reports what modules did against the rules.
func (w *world) close() error {
	var errs []error
	for _, n := range w.opened {
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
func (n *node) to(peer *node) (e mtl.Endpoint) {
	p := peer.peer()
	var err error
	n.do(func() { e, err = n.module.Connect(p) })
	if err != nil {
		n.w.Fatalf("connect of rank %d with rank %d: %w", n.rank, peer.rank, err)
	}
	return e
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

// Endpoint implements mtl.Receiver. In these worlds the ranks of a communicator are dealt out to the
// processes in turns. Most cases use the first rank of each process.
func (n *node) Endpoint(_ uint32, source int) (mtl.Endpoint, bool) {
	if !n.polling {
		n.fault("Endpoint was asked outside of Poll")
	}
	proc := source % len(n.w.nodes)
	if source < 0 || n.dead[proc] {
		return 0, false
	}
	to, err := n.module.Connect(n.w.nodes[proc].peer())
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
	over bool // when the call returned, or by Done
	buf  []byte
	kept []byte // if the node has a keeper
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
	case o.over:
		o.n.fault("Done was called for an operation that is over: %+v", op.Result)
	case o.n.closed:
		o.n.fault("Done was called after Close")
	}
	if o.n.keeper != nil {
		o.kept = bytes.Clone(o.n.keeper.Kept(op))
	}
	o.over = true
	o.n.notify()
}

func (o *operation) ended() (ended bool) {
	o.n.do(func() { ended = o.over })
	return ended
}

// envelope names what send and receive need beyond the buffer.
type envelope struct {
	cid    uint32
	tag    int32
	mode   mtl.Mode
	member member // of the sender's process
}

// member is one of the ranks of a process. The zero value is the first.
type member struct {
	index    int // among the ranks of its process
	endpoint uint16
}

// source returns the rank of a member of a process.
func (n *node) source(m member) int32 { return int32(n.rank + m.index*len(n.w.nodes)) }

// try starts a send, which may be refused.
func (n *node) try(to *node, m envelope, buf []byte) (o *operation, err error) {
	e := n.to(to)
	o = n.operation()
	n.do(func() {
		o.over, err = n.module.Send(&o.Op, e, mtl.Envelope{CID: m.cid, Source: n.source(m.member), Tag: m.tag, Endpoint: m.member.endpoint}, buf, m.mode)
		if o.over && m.mode == mtl.Synchronous {
			n.fault("a synchronous send was done when it was called")
		}
	})
	return o, err
}

func (n *node) send(to *node, m envelope, buf []byte) *operation {
	o, err := n.try(to, m, buf)
	if err != nil {
		n.w.Fatalf("send of %d bytes from rank %d to rank %d: %w", len(buf), n.rank, to.rank, err)
	}
	return o
}

// receive posts a receive; from nil: from any source.
func (n *node) receive(from *node, m envelope, buf []byte) *operation {
	o, e, ep := n.inquiry(from, m)
	o.buf = buf
	var err error
	n.do(func() { err = n.recv(&o.Op, ep, e, buf) })
	if err != nil {
		n.w.Fatalf("receive at rank %d: %w", n.rank, err)
	}
	return o
}

// recv looks for the message, too, every second time, where the module can.
func (n *node) recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	looker, ok := framework.As[mtl.Looker](n.module)
	if n.receives++; !ok || n.receives%2 == 0 {
		return n.module.Recv(op, from, e, buf)
	}
	n.polling = true
	defer func() { n.polling = false }()
	return looker.RecvLook(op, from, e, buf, 3)
}

func (n *node) inquiry(from *node, m envelope) (o *operation, e mtl.Envelope, ep mtl.Endpoint) {
	o = n.operation()
	e = mtl.Envelope{CID: m.cid, Source: mtl.AnySource, Tag: m.tag}
	if from != nil {
		e.Source, e.Endpoint, ep = from.source(m.member), m.member.endpoint, n.to(from)
	}
	return o, e, ep
}

// probe looks once.
func (n *node) probe(from *node, m envelope, claim bool) *operation {
	o, e, ep := n.inquiry(from, m)
	var err error
	n.do(func() { err = n.module.Probe(&o.Op, ep, e, claim) })
	n.w.Check(err)
	n.w.all(o)
	return o
}

// find probes until something is found.
func (n *node) find(from *node, m envelope, claim bool) (o *operation) {
	n.w.Until("a probe that finds the message", func() bool {
		o = n.probe(from, m, claim)
		return o.Found
	})
	return o
}

// until polls all nodes that are not held until cond holds. cond is called
// without locks.
func (w *world) until(what string, cond func() bool, held ...*node) {
	w.Until(what, func() bool {
		done := cond()
		if !done {
			w.pollAll(held...)
		}
		return done
	})
}

// untilLocked is until for a cond that is called with n's lock held.
func (w *world) untilLocked(what string, n *node, cond func() bool) {
	w.until(what, func() (done bool) {
		n.do(func() { done = cond() })
		return done
	})
}

func (w *world) pollAll(held ...*node) {
	for _, n := range w.nodes {
		if !slices.Contains(held, n) {
			n.poll()
		}
	}
}

// over polls until every operation is over, in whatever way.
func (w *world) over(ops ...*operation) {
	i := 0
	w.until("operations", func() bool {
		for i < len(ops) && ops[i].ended() {
			i++
		}
		if w.Context().Err() != nil && i < len(ops) {
			w.Fatalf("%d of %d operations do not end, the first is %d: %w", w.pending(ops), len(ops), i, context.Cause(w.Context()))
		}
		return i == len(ops)
	})
}

// all is over for operations that succeed.
func (w *world) all(ops ...*operation) {
	w.over(ops...)
	for _, o := range ops {
		if o.Err != nil {
			w.Fatalf("rank %d: %w", o.n.rank, o.Err)
		}
	}
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
func (w *world) quiet() {
	want := make([]int, len(w.nodes))
	for i, n := range w.nodes {
		n.do(func() { want[i] = len(n.control) + len(w.nodes) })
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			w.all(a.sendControl(b, []byte("quiet")))
		}
	}
	for i, n := range w.nodes {
		w.untilLocked("control messages", n, func() bool { return len(n.control) >= want[i] })
	}
}

// check fails unless the receive of an operation that has succeeded got what was sent.
func (o *operation) check(from *node, tag int32, sent []byte) {
	o.checkMember(from, member{}, tag, sent)
}

// checkMember is check for a message of one of the ranks of a process.
func (o *operation) checkMember(from *node, m member, tag int32, sent []byte) {
	w, source := o.n.w, from.source(m)
	switch {
	case o.Err != nil:
		w.Fatalf("rank %d: %w", o.n.rank, o.Err)
	case o.Canceled:
		w.Fatalf("the receive was canceled")
	case o.Source != source || o.Tag != tag || o.Bytes != int64(len(sent)):
		w.Fatalf("source %d, tag %d, %d bytes were sent, and source %d, tag %d, %d bytes came", source, tag, len(sent), o.Source, o.Tag, o.Bytes)
	}
	w.Same(fmt.Sprintf("%d bytes arrived changed", len(sent)), o.buf[:len(sent)], sent)
}

// gets waits for the receive and for what else is to end, and checks what it got.
func (o *operation) gets(from *node, tag int32, sent []byte, others ...*operation) {
	o.n.w.all(append(others, o)...)
	o.check(from, tag, sent)
}

// exchange sends a message into a receive that is there.
func (w *world) exchange(a, b *node, m envelope, sent []byte) {
	r := b.receive(a, m, make([]byte, len(sent)))
	r.gets(a, m.tag, sent, a.send(b, m, sent))
}

// pattern is n bytes that differ with seed.
func pattern(seed, n int) []byte { return kittest.Payload(seed, n) }
