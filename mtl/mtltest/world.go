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

// world contains the processes of a case.
type world struct {
	*kittest.T
	subject     Subject
	job         *kittest.Job
	nodesByRank []*node
	// allNodes includes nodes that were replaced.
	allNodes []*node
}

// node is one process with an engine, a module and the protocol above it. The engine's lock guards it.
type node struct {
	w           *world
	rank        int
	incarnation framework.Incarnation
	proc        framework.Proc
	engine      *progress.Engine
	module      mtl.Module
	isClosed    bool

	controlMessages [][]byte
	// activity completes at each event, if it is awaited.
	activity       progress.Completion
	isPolling      bool
	receiveCount   int
	forgottenRanks map[int]bool
	messageSaver   mtl.MessageSaver
	// violations are the module's violations of the calling rules.
	violations error
}

func newWorld(t *kittest.T, s Subject, size int) *world {
	w := &world{T: t, subject: s, job: kittest.NewJob(size, 1)}
	w.job.First = s.First
	t.Cleanup(w.close)
	for rank := range size {
		w.nodesByRank = append(w.nodesByRank, w.open(rank, s.Component, progress.Options{}))
	}
	return w
}

// open makes a process. Its module is not added to its engine, because the case polls.
func (w *world) open(rank int, c mtl.Component, opt progress.Options) *node {
	env := w.job.Begin(rank, opt)
	n := &node{w: w, rank: rank, proc: env.Identity.Proc, incarnation: env.Self, engine: env.Engine}
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
	w.allNodes = append(w.allNodes, n)
	return n
}

// reopen closes the module of a process and opens another one.
func (w *world) reopen(rank int, opt progress.Options) *node {
	w.Check(w.nodesByRank[rank].close())
	w.nodesByRank[rank] = w.open(rank, w.subject.Component, opt)
	return w.nodesByRank[rank]
}

// close closes all processes, and returns the violations of the calling rules.
func (w *world) close() error {
	var errs []error
	for _, n := range w.allNodes {
		errs = append(errs, n.close())
		n.withLock(func() { errs = append(errs, n.violations) })
	}
	return errors.Join(errs...)
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
		return fmt.Errorf("close of rank %d: %w", n.rank, err)
	}
	return nil
}

// peer returns the data that others need to connect to n.
func (n *node) peer() framework.Peer {
	return framework.Peer{Incarnation: n.incarnation, Proc: n.proc, Blob: n.module.Blob()}
}

// withLock runs f with the engine's lock held.
func (n *node) withLock(f func()) {
	n.engine.Lock()
	defer n.engine.Unlock()
	f()
}

func (n *node) reportViolation(format string, args ...any) {
	n.violations = errors.Join(n.violations, fmt.Errorf("rank %d: %s", n.rank, fmt.Sprintf(format, args...)))
}

// endpointOf returns n's endpoint of a process.
func (n *node) endpointOf(peer *node) (e mtl.Endpoint) {
	p := peer.peer()
	var err error
	n.withLock(func() { e, err = n.module.Connect(p) })
	if err != nil {
		n.w.Fatalf("connect of rank %d with rank %d: %w", n.rank, peer.rank, err)
	}
	return e
}

// Poll implements progress.Source for engines that poll.
func (n *node) Poll() int {
	n.isPolling = true
	defer func() { n.isPolling = false }()
	return n.module.Poll()
}

// Unwrap exposes the optional interfaces of the module to the engine.
func (n *node) Unwrap() any { return n.module }

func (n *node) poll() (events int) {
	n.withLock(func() {
		if !n.isClosed {
			events = n.Poll()
		}
	})
	return events
}

// Control implements mtl.Receiver.
func (n *node) Control(data []byte) {
	if !n.isPolling {
		n.reportViolation("Control was called outside of Poll")
	}
	n.controlMessages = append(n.controlMessages, bytes.Clone(data))
	n.notify()
}

// Endpoint implements mtl.Receiver. The ranks of a communicator are assigned to the processes in a cyclic order. Most cases use the first rank of
// each process.
func (n *node) Endpoint(_ uint32, source int) (mtl.Endpoint, bool) {
	if !n.isPolling {
		n.reportViolation("Endpoint was called outside of Poll")
	}
	proc := source % len(n.w.nodesByRank)
	if source < 0 || n.forgottenRanks[proc] {
		return 0, false
	}
	to, err := n.module.Connect(n.w.nodesByRank[proc].peer())
	return to, err == nil
}

func (n *node) notify() {
	if !n.activity.Done() {
		n.engine.Complete(&n.activity)
	}
}

// operation is one operation of a node.
type operation struct {
	mtl.Op
	n *node
	// isOver is set when the call returns a completed operation, or by Done.
	isOver bool
	buf    []byte
	// keptMessage is the saved content, if the node has a messageSaver.
	keptMessage []byte
}

func (n *node) operation() *operation {
	o := &operation{n: n}
	o.Owner = o
	return o
}

// Done implements mtl.Owner.
func (o *operation) Done(op *mtl.Op) {
	switch {
	case !o.n.isPolling:
		o.n.reportViolation("Done was called outside of Poll")
	case op != &o.Op:
		o.n.reportViolation("Done of another operation was called")
	case o.isOver:
		o.n.reportViolation("Done was called for a completed operation: %+v", op.Result)
	case o.n.isClosed:
		o.n.reportViolation("Done was called after Close")
	}
	if o.n.messageSaver != nil {
		o.keptMessage = bytes.Clone(o.n.messageSaver.SavedMessage(op))
	}
	o.isOver = true
	o.n.notify()
}

func (o *operation) hasEnded() (ended bool) {
	o.n.withLock(func() { ended = o.isOver })
	return ended
}

// envelope contains the parameters of a send or a receive except for the buffer.
type envelope struct {
	cid  uint32
	tag  int32
	mode mtl.Mode
	// member is one of the sender's process.
	member member
}

// member is one of the ranks of a process. The zero value is the first.
type member struct {
	// index is the position among the ranks of the process.
	index    int
	endpoint uint16
}

// source returns the rank of a member of a process.
func (n *node) source(m member) int32 { return int32(n.rank + m.index*len(n.w.nodesByRank)) }

// trySend starts a send and returns its error.
func (n *node) trySend(to *node, m envelope, buf []byte) (o *operation, err error) {
	e := n.endpointOf(to)
	o = n.operation()
	n.withLock(func() {
		o.isOver, err = n.module.Send(&o.Op, e, mtl.Envelope{CID: m.cid, Source: n.source(m.member), Tag: m.tag, Endpoint: m.member.endpoint}, buf, m.mode)
		if o.isOver && m.mode == mtl.Synchronous {
			n.reportViolation("a synchronous send was done when it was called")
		}
	})
	return o, err
}

func (n *node) send(to *node, m envelope, buf []byte) *operation {
	o, err := n.trySend(to, m, buf)
	if err != nil {
		n.w.Fatalf("send of %d bytes from rank %d to rank %d: %w", len(buf), n.rank, to.rank, err)
	}
	return o
}

// receive posts a receive. from is nil for any source.
func (n *node) receive(from *node, m envelope, buf []byte) *operation {
	o, e, ep := n.newMatch(from, m)
	o.buf = buf
	var err error
	n.withLock(func() { err = n.startReceive(&o.Op, ep, e, buf) })
	if err != nil {
		n.w.Fatalf("receive at rank %d: %w", n.rank, err)
	}
	return o
}

// startReceive uses RecvAndPoll for every second receive if the module implements mtl.ImmediateReceiver.
func (n *node) startReceive(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	looker, ok := framework.As[mtl.ImmediateReceiver](n.module)
	if n.receiveCount++; !ok || n.receiveCount%2 == 0 {
		return n.module.Recv(op, from, e, buf)
	}
	n.isPolling = true
	defer func() { n.isPolling = false }()
	return looker.RecvAndPoll(op, from, e, buf, 3)
}

func (n *node) newMatch(from *node, m envelope) (o *operation, e mtl.Envelope, ep mtl.Endpoint) {
	o = n.operation()
	e = mtl.Envelope{CID: m.cid, Source: mtl.AnySource, Tag: m.tag}
	if from != nil {
		e.Source, e.Endpoint, ep = from.source(m.member), m.member.endpoint, n.endpointOf(from)
	}
	return o, e, ep
}

func (n *node) probeOnce(from *node, m envelope, claim bool) *operation {
	o, e, ep := n.newMatch(from, m)
	var err error
	n.withLock(func() { err = n.module.Probe(&o.Op, ep, e, claim) })
	n.w.Check(err)
	n.w.awaitSuccess(o)
	return o
}

func (n *node) probeUntilFound(from *node, m envelope, claim bool) (o *operation) {
	n.w.Until("a probe that finds the message", func() bool {
		o = n.probeOnce(from, m, claim)
		return o.Found
	})
	return o
}

// until polls all nodes except the held ones until cond holds. It calls cond without locks.
func (w *world) until(what string, cond func() bool, held ...*node) {
	w.Until(what, func() bool {
		done := cond()
		if !done {
			w.pollAll(held...)
		}
		return done
	})
}

// untilLocked is until for a cond that requires the lock of n.
func (w *world) untilLocked(what string, n *node, cond func() bool) {
	w.until(what, func() (done bool) {
		n.withLock(func() { done = cond() })
		return done
	})
}

func (w *world) pollAll(held ...*node) {
	for _, n := range w.nodesByRank {
		if !slices.Contains(held, n) {
			n.poll()
		}
	}
}

// awaitEnd polls until every operation has ended, successfully or not.
func (w *world) awaitEnd(ops ...*operation) {
	i := 0
	w.until("operations", func() bool {
		for i < len(ops) && ops[i].hasEnded() {
			i++
		}
		if w.Context().Err() != nil && i < len(ops) {
			w.Fatalf("%d of %d operations did not end, the first is %d: %w", w.countPending(ops), len(ops), i, context.Cause(w.Context()))
		}
		return i == len(ops)
	})
}

// awaitSuccess is awaitEnd for operations that must succeed.
func (w *world) awaitSuccess(ops ...*operation) {
	w.awaitEnd(ops...)
	for _, o := range ops {
		if o.Err != nil {
			w.Fatalf("rank %d: %w", o.n.rank, o.Err)
		}
	}
}

func (w *world) countPending(ops []*operation) (n int) {
	for _, o := range ops {
		if !o.hasEnded() {
			n++
		}
	}
	return n
}

// drainNetwork exchanges control messages between all nodes, so that messages sent before have arrived.
func (w *world) drainNetwork() {
	want := make([]int, len(w.nodesByRank))
	for i, n := range w.nodesByRank {
		n.withLock(func() { want[i] = len(n.controlMessages) + len(w.nodesByRank) })
	}
	for _, a := range w.nodesByRank {
		for _, b := range w.nodesByRank {
			w.awaitSuccess(a.sendControl(b, []byte("quiet")))
		}
	}
	for i, n := range w.nodesByRank {
		w.untilLocked("control messages", n, func() bool { return len(n.controlMessages) >= want[i] })
	}
}

// check fails the case unless the receive got the message that was sent.
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
		w.Fatalf("source %d, tag %d, %d bytes were sent, and source %d, tag %d, %d bytes arrived", source, tag, len(sent), o.Source, o.Tag, o.Bytes)
	}
	w.Same(fmt.Sprintf("%d bytes arrived changed", len(sent)), o.buf[:len(sent)], sent)
}

// mustGet awaits the receive and the other operations, and checks the message.
func (o *operation) mustGet(from *node, tag int32, sent []byte, others ...*operation) {
	o.n.w.awaitSuccess(append(others, o)...)
	o.check(from, tag, sent)
}

// exchange sends a message into a posted receive.
func (w *world) exchange(a, b *node, m envelope, sent []byte) {
	r := b.receive(a, m, make([]byte, len(sent)))
	r.mustGet(a, m.tag, sent, a.send(b, m, sent))
}

// pattern returns n bytes that depend on seed.
func pattern(seed, n int) []byte { return kittest.Payload(seed, n) }
