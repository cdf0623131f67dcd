package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Nonblocking collectives start at the call. All members call collectives in the same order, blocking ones included, which may follow while others are
// in progress. They progress while the program computes, and complete in any order. Buffers belong to the library until the request is complete.
// Wait and all functions on requests accept them together with requests of messages. Their Status has no source and tag, only Err. They cannot be
// canceled (ErrUnsupported). A failure breaks the communicator's collectives like that of a blocking one. They complete after Close of the
// communicator.

// mostRunning bounds a communicator's operations that exchange something at the same time.
// Further ones are queued. All members start them in the same order, so that an
// operation depends on none that was started after it.
const mostRunning = 1000

// nonblocking is the state of a communicator's nonblocking operations.
type nonblocking struct {
	// Number of running and waiting operations. Changes with the engine's lock held.
	n atomic.Int32

	// Guarded by the engine's lock.
	running []*operation // In the order of their starts.
	// Started after all running ones, in the order of their starts.
	queued []*operation
	// startQueued is active in a caller.
	isStarting bool
	// Of a blocking collective in awaitQueued, or nil.
	blockedCall *progress.Completion
	// Steps for the communicator's goroutine.
	work      []step
	isWorking bool // The goroutine runs.
	// The communicator is closed, and its resources go with the last operation.
	isClosing bool

	labels    pprof.LabelSet // Used by the goroutine only.
	hasLabels bool           // labels is set.
}

// operation is a nonblocking collective. It is reused like a PML's request. The request completes when the schedule has ended, or has failed and
// accesses no memory of the caller any more.
type operation struct {
	pml.Request
	k   *collective
	op  coll.Operation
	tag int
	// Sequence number of the next collective.
	end uint32

	algorithm *coll.Algorithm
	args      coll.Args
	schedule  coll.Schedule
	run       coll.Run
	call      coll.Call
	instance  coll.Instance // Of the algorithm, if any.
	steps     []step        // By index.

	// Of a form with layouts. Nil once its result is unpacked, and for others.
	packing *packing

	// Set while the members compare their calls. nil while the operation of the program runs.
	comparison *afterComparison

	// It is of a persistent operation, and not in the free list.
	isKept bool
	// Between Start and Release, if it is kept.
	inUse atomic.Bool

	busy        int   // Steps in progress.
	isAdvancing bool  // advance is active in a caller.
	err         error // First error.
	// Other members were notified of err.
	isReported bool

	endHook func(error) // Hook for the end, or nil.
}

// step is a step of an operation, and the notifier of its message. It embeds the operation, so that the message is
// awaited as the operation is (pml.Request.Awaited).
type step struct {
	*operation
	i int
}

// start starts one nonblocking call, unless its arguments are invalid.
func (k *collective) start(x *call, wrong error) (Request, error) {
	if wrong != nil {
		return Request{}, wrong
	}
	x.packing.keep()
	return k.startIn(nil, x)
}

// startIn is start in a kept operation, which is used unless it is nil or in use. Its schedule stays as long as the
// algorithm does, since its arguments do.
func (k *collective) startIn(kept *operation, x *call) (Request, error) {
	if err := k.enter(nil); err != nil {
		if why := k.comm().terminalError(); why != nil && errors.Is(err, why) {
			return k.comm().startFailed(why), nil
		}
		return Request{}, err
	}
	defer k.exit()
	choice, err := k.algorithmFor(x)
	if err == nil && k.comparesCalls {
		choice, err = k.plainAlgorithmFor(x)
	}
	if err != nil {
		return Request{}, err
	}
	o := k.operationOf(kept, x, choice)
	o.call.Sequence = k.operationCount
	o.tag = k.nextTag()
	needs := len(o.schedule.Steps)
	if k.comparesCalls {
		if err := o.compareFirst(x, choice); err != nil {
			return Request{}, err
		}
		needs = max(needs, len(o.schedule.Steps))
	}
	for i := len(o.steps); i < needs; i++ {
		o.steps = append(o.steps, step{o, i})
	}
	if k.comm().session.process.collectiveHooks != nil {
		o.endHook = k.watch(nil, "i"+x.op.String(), x.args.Size, o.call.Sequence, true)
	}
	e := k.engine()
	e.Lock()
	defer e.Release()
	o.prepare(k.operationCount)
	n := &k.started
	n.n.Add(1)
	if len(n.queued) == 0 && n.mayRun(o.end) {
		n.run(o)
	} else {
		n.queued = append(n.queued, o)
	}
	return Request{&o.Request, o.Generation()}, nil
}

// prepare makes the request pending. end is the sequence number of the next collective. Lock held.
func (o *operation) prepare(end uint32) {
	o.Start()
	o.err, o.isReported, o.busy, o.end = nil, false, 0, end
}

// operationOf returns an operation for a call, which is kept unless that is nil or in use. The caller sets its sequence number and its tag.
// Inside start.
func (k *collective) operationOf(kept *operation, x *call, choice *coll.Choice) *operation {
	alg := choice.Algorithm
	o := kept.takeKept()
	if o == nil {
		o = k.newOperation()
	}
	if o.k != k || o.algorithm != alg || !o.isKept && o.args != x.args {
		o.k, o.algorithm = k, nil
		k.plan(&o.schedule, &o.args, alg, x)
		if x.args.Vectors == nil || o.isKept {
			o.algorithm = alg
		}
	}
	o.op, o.call.Reducer = x.op, x.reducer
	o.call.In, o.call.Out = x.in, x.out
	if o.instance = k.instance(choice.Component); o.instance != nil {
		o.call.Shared = o.instance.Memory()
	}
	switch n := o.schedule.Temp + x.packing.room(); {
	case n > scratchLimit:
		o.call.Temp = k.comm().session.process.pieces.take(n)
	case cap(o.call.Temp) < n:
		o.call.Temp = make([]byte, n, max(64, n)) // Aligned for every element type.
	default:
		o.call.Temp = o.call.Temp[:n]
	}
	if o.packing = x.packing; o.packing != nil {
		o.packing.pack(&o.call.Buffers, o.call.Temp[o.schedule.Temp:])
	}
	return o
}

func (k *collective) engine() *progress.Engine { return k.comm().local.progress }

// mostAhead is the largest distance in sequence numbers of a collective from the oldest running one.
// Tags repeat after coll.MaxTag+1 sequence numbers, and a blocking call may use several.
const mostAhead = coll.MaxTag - 64

// tagsFree reports whether no running operation has one of the tags of sequence numbers before end. Lock held.
func (n *nonblocking) tagsFree(end uint32) bool {
	return len(n.running) == 0 || end-n.running[0].call.Sequence <= mostAhead
}

// mayRun reports whether the first queued operation, with sequence numbers before end, may run. Lock held.
func (n *nonblocking) mayRun(end uint32) bool {
	return len(n.running) < mostRunning && n.tagsFree(end)
}

// run begins an operation. Lock held.
func (n *nonblocking) run(o *operation) {
	n.running = append(n.running, o)
	o.run.Begin(&o.schedule)
	o.advance()
}

// startQueued runs queued operations in order, as far as mayRun allows. Lock held.
func (n *nonblocking) startQueued() {
	if n.isStarting { // By the end of an operation that it has started.
		return
	}
	n.isStarting = true
	for len(n.queued) > 0 && n.mayRun(n.queued[0].end) {
		o := n.queued[0]
		n.queued[0] = nil
		n.queued = n.queued[1:]
		n.run(o)
	}
	n.isStarting = false
}

// awaitQueued waits until all nonblocking operations are running, and none of them has a tag of
// the blocking collective that begins. Called inside do.
func (k *collective) awaitQueued(ctx context.Context) error {
	n, e := &k.started, k.engine()
	e.Lock()
	defer e.Unlock()
	for len(n.queued) > 0 || !n.tagsFree(k.operationCount) {
		n.blockedCall = new(progress.Completion)
		err := e.Wait(ctx, n.blockedCall, nil)
		n.blockedCall = nil
		if err != nil {
			return err
		}
		if err := k.checkUsable(); err != nil {
			return err
		}
	}
	return nil
}

// closing reports whether operations of the closed communicator are in progress. The last of them then releases its resources.
func (k *collective) closing() bool {
	if !k.used.Load() {
		return false
	}
	if k.early != nil { // Also during a Start or Wait, which may promote it.
		k.early()
	}
	e := k.engine()
	e.Lock()
	defer e.Unlock()
	k.started.isClosing = k.started.n.Load() > 0
	return k.started.isClosing
}

// newOperation returns an operation from the free list, or a new one.
func (k *collective) newOperation() *operation {
	s := k.comm().local
	s.progress.Lock()
	defer s.progress.Unlock()
	if last := len(s.operations) - 1; last >= 0 {
		o := s.operations[last]
		s.operations = s.operations[:last]
		return o
	}
	o := new(operation)
	o.Init(s.progress, o)
	return o
}

// advance starts all steps that are ready, and completes the request at the end. The lock is held.
func (o *operation) advance() {
	if o.isAdvancing {
		return
	}
	o.isAdvancing = true
	for o.err == nil {
		if i, ok := o.run.NextStep(); ok {
			o.begin(i)
			continue
		}
		if !o.run.IsComplete() {
			break
		}
		if o.comparison == nil {
			o.startUnpack()
			break
		}
		o.startCompared()
	}
	o.isAdvancing = false
	local := o.k.comm().local
	if o.busy == 0 && (o.err == nil && o.run.IsComplete() || o.isReported) {
		o.ends()
	}
	local.pollPendingSteps()
}

// quickBytes limits the bytes that built-in operations combine, or a step copies, with the engine's lock held. It takes some microseconds, like a
// fragment of a message.
const quickBytes = 16 << 10

// unpackStep is the number of the step that unpacks the result, which no schedule has.
const unpackStep = -1

// startUnpack unpacks the result of a complete schedule, a large one on the communicator's goroutine. Lock held.
func (o *operation) startUnpack() {
	if o.packing == nil || o.busy > 0 {
		return
	}
	if n := o.packing.resultSize(); n > quickBytes {
		o.busy++
		o.k.started.queueStep(o.k.engine(), step{o, unpackStep})
	} else if n > 0 {
		o.local(unpackStep)
		o.packing = nil
	}
}

// begin starts a step. Lock held.
func (o *operation) begin(i int) {
	s := &o.schedule.Steps[i]
	if s.Kind == coll.Own {
		o.startOwnStep(i)
		return
	}
	c := o.k.comm()
	var r *pml.Request
	var err error
	switch s.Kind {
	case coll.Send:
		buf := o.call.At(s.Buf, s.N)
		r, err = c.pml.StartSend(pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, int(s.Peer), o.tag, pml.Collective, pml.Standard)
	case coll.Recv:
		r = c.pml.StartRecv(pml.Buffer{Bytes: o.call.At(s.Buf, s.N)}, int(s.Peer), o.tag, pml.Collective)
	default:
		if s.N > quickBytes || s.Kind != coll.Copy && o.call.Apply != nil && !o.call.IsQuick {
			o.busy++
			o.k.started.queueStep(o.k.engine(), step{o, i})
		} else {
			o.local(i)
			o.run.Complete(i)
		}
		return
	}
	switch {
	case err != nil:
		o.stop(err)
	case r.Done():
		o.take(r, i)
	default:
		o.busy++
		r.Notify(&o.steps[i])
	}
}

// local does a step that combines or copies, or that the instance does without waiting.
func (o *operation) local(i int) {
	if i == unpackStep {
		o.packing.unpack(&o.call.Buffers)
		return
	}
	s := &o.schedule.Steps[i]
	switch s.Kind {
	case coll.Copy:
		o.call.Copy(s)
	case coll.Work:
		runWork(o.instance, s, &o.call)
	default:
		o.call.Apply(o.call.At(s.Buf, s.N), o.call.At(s.From, s.N))
	}
}

// Completed implements pml.Notifier.
func (s *step) Completed(r *pml.Request) {
	o := s.operation
	o.busy--
	o.take(r, s.i)
	o.advance()
}

// take uses the request of a step up. Lock held.
func (o *operation) take(r *pml.Request, i int) {
	st, _, err := r.Take(r.Generation())
	o.stepDone(i, o.schedule.Steps[i].CheckLength(st.Bytes, err))
}

// stepDone records the end of a step. The lock is held.
func (o *operation) stepDone(i int, err error) {
	switch {
	case err != nil:
		o.stop(err)
	case i == unpackStep:
		o.packing = nil
	default:
		o.run.Complete(i)
	}
}

// stop stops the operation from starting steps, and notifies the members, so that its steps in progress end. The lock is held.
func (o *operation) stop(err error) {
	if o.err != nil {
		return
	}
	k := o.k
	isBroken := k.broken.Load() != nil
	if o.err = fmt.Errorf("i%v: %w", o.op, err); isBroken { // The failure that broke them aborts the steps.
		if !errors.Is(err, ErrProcFailed) {
			o.err = k.checkUsable()
		}
		if _, uses := framework.As[coll.Withdrawer](o.instance); !uses {
			o.isReported = true
			return
		}
	}
	cause, x := o.err, o.instance
	go func() {
		if !isBroken {
			_ = k.fail(cause)
			k.abort(cause)
		}
		withdrawBuffers(x, &o.call)
		e := k.engine()
		e.Lock()
		defer e.Release()
		o.isReported = true
		o.advance()
	}()
}

// ends completes the request. Lock held.
func (o *operation) ends() {
	k := o.k
	n := &k.started
	i := slices.Index(n.running, o)
	n.running = slices.Delete(n.running, i, i+1)
	left := n.n.Add(-1)
	if o.comparison != nil {
		o.call, o.comparison = o.comparison.call, nil
	}
	o.call = coll.Call{Buffers: coll.Buffers{Temp: o.call.Temp}}
	o.instance, o.packing = nil, nil
	o.Request.Status = pml.NoMessage()
	o.Request.Status.Err = o.err
	if left == 0 && n.isClosing {
		n.isClosing = false
		go k.comm().endPart() // It takes the lock.
	}
	if o.endHook != nil {
		o.endHook(o.err)
		o.endHook = nil
	}
	o.Finish()
	n.startQueued()
	if n.blockedCall != nil {
		k.engine().Complete(n.blockedCall)
	}
}

// Cancel implements pml.Owner. See Lasting.
func (o *operation) Cancel() {}

// Lasting implements pml.Lasting. One member cannot cancel a collective.
func (o *operation) Lasting() error {
	return fmt.Errorf("%w: a collective cannot be canceled", ErrUnsupported)
}

// Release implements pml.Owner.
func (o *operation) Release() {
	c := o.k.comm()
	if cap(o.call.Temp) > scratchLimit {
		c.session.process.pieces.give(o.call.Temp)
		o.call.Temp = nil
	}
	if o.isKept {
		o.inUse.Store(false)
		return
	}
	c.local.operations = append(c.local.operations, o)
}

// First implements pml.Owner.
func (o *operation) First() progress.Source { return nil }

// queueStep queues a step for the communicator's goroutine, and starts that if it does not run. The goroutine ends when the queue is empty.
// Lock held.
func (n *nonblocking) queueStep(e *progress.Engine, s step) {
	if n.work = append(n.work, s); !n.isWorking {
		n.isWorking = true
		c := s.k.comm()
		e.Go(func() { n.label(e, c); n.runSteps(e) })
	}
}

// label sets the profile labels of the goroutine.
func (n *nonblocking) label(e *progress.Engine, c *Comm) {
	if !n.hasLabels {
		n.labels, n.hasLabels = c.Labels(), true
	}
	e.Label(n.labels)
}

// errNoReturn is the error of an operation of the program that has ended its goroutine.
var errNoReturn = errors.New("it ended its goroutine")

// runSteps executes queued steps until the queue is empty. A function of the program may panic.
func (n *nonblocking) runSteps(e *progress.Engine) {
	var s step
	e.Lock()
	defer func() {
		if s.operation != nil { // The lock is not held.
			c := s.k.comm()
			why := any(errNoReturn)
			if v := recover(); v != nil {
				why = v
			}
			e.Lock()
			s.busy--
			s.stop(fmt.Errorf("%w: %v", errPanicked, why))
			s.advance()
			if n.isWorking = len(n.work) > 0; n.isWorking {
				e.Go(func() { n.label(e, c); n.runSteps(e) })
			}
		}
		e.Release()
	}()
	for len(n.work) > 0 {
		s, n.work = n.work[0], n.work[1:]
		e.Release()
		s.local(s.i)
		e.Lock()
		o, i := s.operation, s.i
		s.operation = nil
		o.busy--
		o.stepDone(i, nil)
		o.advance()
	}
	n.work, n.isWorking = nil, false
}
