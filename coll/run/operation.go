package run

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// An Operation is a nonblocking collective. It is reused like a PML's request. The request completes
// when the schedule has ended, or has failed and no longer accesses memory of the caller.
type Operation struct {
	pml.Request
	collState *State
	op        coll.Operation
	tag       int
	// That of the next collective.
	nextSequence uint32

	algorithm *coll.Algorithm
	args      coll.Args
	schedule  coll.Schedule
	execution coll.Run
	call      coll.Call
	// Of the algorithm, if any.
	instance coll.Instance
	steps    []step // By index.

	// Of a form with layouts. Nil once its result is unpacked, and for others.
	packing Packing

	// Set while the ranks compare their calls. nil while the operation of the program runs.
	comparison *afterComparison

	// It is of a persistent operation, and not in the free list.
	isKept bool
	// Between Start and Release, if it is kept.
	inUse atomic.Bool

	pendingStepCount int
	// advance is active in a caller.
	isAdvancing bool
	firstErr    error
	// Other ranks were notified of firstErr.
	isReported bool
	// A combination uses call.Temp after the end.
	isTempInUse bool

	// Hook for the end, or nil.
	endHook func(error)
}

// step is a step of an operation, and the notifier of its message. It embeds the operation, so that
// the message is awaited as the operation is (pml.Request.Awaited).
type step struct {
	*Operation
	stepIndex int
}

// A Handle is the request of a started operation, with its generation.
type Handle struct {
	Request    *pml.Request
	Generation uint32
}

// Start starts a nonblocking call in a kept operation (Rank.NewKept), which is used unless it is
// nil or in use. The schedule of a kept operation stays as long as the algorithm does, since its
// arguments do.
func (k *State) Start(kept *Operation, x *Call) (Handle, error) {
	if err := k.Enter(nil); err != nil {
		return Handle{}, err
	}
	defer k.Exit()
	choice, err := k.algorithmFor(x)
	var records *Call
	var exchange *coll.Choice
	if err == nil && k.comparesCalls {
		if choice, err = k.plainAlgorithmFor(x); err == nil {
			records = recordExchange(callRecord(x, choice), k.env.Size)
			exchange, err = k.plainAlgorithmFor(records)
		}
	}
	if err != nil {
		return Handle{}, err
	}
	o := k.operationOf(kept, x, choice)
	o.call.Sequence = k.operationCount
	o.tag = k.nextTag()
	needs := len(o.schedule.Steps)
	if records != nil {
		o.compareFirst(records, exchange)
		needs = max(needs, len(o.schedule.Steps))
	}
	for i := len(o.steps); i < needs; i++ {
		o.steps = append(o.steps, step{o, i})
	}
	if k.env.HasHooks {
		o.endHook = k.env.Host.Watch(nil, "i"+x.Op.String(), x.Args.Size, o.call.Sequence, true)
	}
	e := k.engine()
	e.Lock()
	defer e.Release()
	o.prepare(k.operationCount)
	n := &k.nonblocking
	n.unfinishedCount.Add(1)
	if len(n.queued) == 0 && n.mayRun(o.nextSequence) {
		n.run(o)
	} else {
		n.queued = append(n.queued, o)
	}
	return Handle{&o.Request, o.Generation()}, nil
}

// prepare makes the request pending. end is the sequence number of the next collective. Lock held.
func (o *Operation) prepare(end uint32) {
	o.Start()
	o.firstErr, o.isReported, o.isTempInUse, o.pendingStepCount, o.nextSequence = nil, false, false, 0, end
}

// operationOf returns an operation for a call, which is kept unless that is nil or in use. The
// caller sets its sequence number and its tag. Inside Start.
func (k *State) operationOf(kept *Operation, x *Call, choice *coll.Choice) *Operation {
	alg := choice.Algorithm
	o := kept.takeKept()
	if o == nil {
		o = k.newOperation()
	}
	if o.collState != k || o.algorithm != alg || !o.isKept && o.args != x.Args {
		o.collState, o.algorithm = k, nil
		k.plan(&o.schedule, &o.args, alg, x)
		if x.Args.Vectors == nil || o.isKept {
			o.algorithm = alg
		}
	}
	o.op, o.call.Reducer = x.Op, x.Reducer
	o.call.In, o.call.Out = x.In, x.Out
	if o.instance = k.instance(choice.Component); o.instance != nil {
		o.call.Shared = o.instance.Memory()
	}
	switch n := o.schedule.Temp + x.packedRoom(); {
	case n > scratchLimit:
		o.call.Temp = k.env.RankResources.pieces.Take(n)
	case cap(o.call.Temp) < n:
		o.call.Temp = make([]byte, n, max(64, n)) // Aligned for every element type.
	default:
		o.call.Temp = o.call.Temp[:n]
	}
	if o.packing = x.Packing; o.packing != nil {
		o.packing.Pack(&o.call.Buffers, o.call.Temp[o.schedule.Temp:])
	}
	return o
}

func (k *State) engine() *progress.Engine { return k.env.RankResources.engine }

// newOperation returns an operation from the free list, or a new one.
func (k *State) newOperation() *Operation {
	s := k.env.RankResources
	s.engine.Lock()
	defer s.engine.Unlock()
	if last := len(s.freeOperations) - 1; last >= 0 {
		o := s.freeOperations[last]
		s.freeOperations = s.freeOperations[:last]
		return o
	}
	o := new(Operation)
	o.Init(s.engine, o)
	return o
}

// advance starts all steps that are ready, and completes the request at the end. The lock is held.
func (o *Operation) advance() {
	if o.isAdvancing {
		return
	}
	o.isAdvancing = true
	for o.firstErr == nil {
		if i, ok := o.execution.NextStep(); ok {
			o.begin(i)
			continue
		}
		if !o.execution.IsComplete() {
			break
		}
		if o.comparison == nil {
			o.startUnpack()
			break
		}
		o.startCompared()
	}
	o.isAdvancing = false
	local := o.collState.env.RankResources // After its end, o may be in use again.
	if o.pendingStepCount == 0 && (o.firstErr == nil && o.execution.IsComplete() || o.isReported) {
		o.ends()
	}
	local.PollSteps()
}

// quickBytes limits the bytes that built-in operations combine, or a step copies, with the engine's
// lock held. It takes some microseconds, like a fragment of a message.
const quickBytes = 16 << 10

// unpackStep is the number of the step that unpacks the result, which no schedule has.
const unpackStep = -1

// startUnpack unpacks the result of a complete schedule, a large one on the communicator's
// goroutine. Lock held.
func (o *Operation) startUnpack() {
	if o.packing == nil || o.pendingStepCount > 0 {
		return
	}
	if n := o.packing.ResultSize(); n > quickBytes {
		o.pendingStepCount++
		o.collState.nonblocking.queueStep(o.collState.engine(), step{o, unpackStep})
	} else if n > 0 {
		o.local(unpackStep)
		o.packing = nil
	}
}

// begin starts a step. Lock held.
func (o *Operation) begin(i int) {
	s := &o.schedule.Steps[i]
	if s.Kind == coll.Own {
		o.startOwnStep(i)
		return
	}
	env := &o.collState.env
	var r *pml.Request
	var err error
	switch s.Kind {
	case coll.Send:
		r, err = env.PML.StartSend(env.buffer(o.call.At(s.Buf, s.N)), int(s.Peer), o.tag, pml.Collective, pml.Standard)
	case coll.Recv:
		r = env.PML.StartRecv(pml.Buffer{Bytes: o.call.At(s.Buf, s.N)}, int(s.Peer), o.tag, pml.Collective)
	default:
		if s.N > quickBytes || s.Kind != coll.Copy && o.call.Apply != nil && !o.call.IsQuick {
			o.pendingStepCount++
			o.collState.nonblocking.queueStep(o.collState.engine(), step{o, i})
		} else {
			o.local(i)
			o.execution.Complete(i)
		}
		return
	}
	switch {
	case err != nil:
		o.stop(err)
	case r.Done():
		o.take(r, i)
	default:
		o.pendingStepCount++
		r.Notify(&o.steps[i])
	}
}

// local does a step that combines or copies, or that the instance does without waiting.
func (o *Operation) local(i int) {
	if i == unpackStep {
		o.packing.Unpack(&o.call.Buffers)
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
	o := s.Operation
	o.pendingStepCount--
	o.take(r, s.stepIndex)
	o.advance()
}

// take consumes the request of a step. Lock held.
func (o *Operation) take(r *pml.Request, i int) {
	st, _, err := r.Take(r.Generation())
	o.stepDone(i, o.schedule.Steps[i].CheckLength(st.Bytes, err))
}

// stepDone records the end of a step. The lock is held.
func (o *Operation) stepDone(i int, err error) {
	switch {
	case err != nil:
		o.stop(err)
	case i == unpackStep:
		o.packing = nil
	default:
		o.execution.Complete(i)
	}
}

// stop stops the operation from starting steps, and notifies the other ranks, so that its steps in
// progress end. The lock is held.
func (o *Operation) stop(err error) {
	if o.firstErr != nil {
		return
	}
	k := o.collState
	isBroken := k.brokenErr.Load() != nil
	if o.firstErr = fmt.Errorf("i%v: %w", o.op, err); isBroken { // The failure that broke them aborts the steps.
		if !errors.Is(err, framework.ErrProcFailed) {
			o.firstErr = k.CheckUsable()
		}
		if _, uses := framework.As[coll.Withdrawer](o.instance); !uses {
			o.isReported = true
			return
		}
	}
	cause, x := o.firstErr, o.instance
	go func() {
		if !isBroken {
			_ = k.Fail(cause)
			k.Abort(cause)
		}
		late := withdrawBuffers(x, &o.call)
		e := k.engine()
		e.Lock()
		defer e.Release()
		if late != nil {
			// A step of this operation may read o.call without the lock until ends.
			o.firstErr, o.isTempInUse = fmt.Errorf("%w; %w", o.firstErr, late), true
		}
		o.isReported = true
		o.advance()
	}()
}

// ends completes the request. Lock held.
func (o *Operation) ends() {
	k := o.collState
	n := &k.nonblocking
	i := slices.Index(n.running, o)
	n.running = slices.Delete(n.running, i, i+1)
	left := n.unfinishedCount.Add(-1)
	if o.comparison != nil {
		o.call, o.comparison = o.comparison.call, nil
	}
	temp := o.call.Temp
	if o.isTempInUse {
		temp = nil
	}
	o.call = coll.Call{Buffers: coll.Buffers{Temp: temp}}
	o.instance, o.packing = nil, nil
	o.Request.Status = pml.NoMessage()
	o.Request.Status.Err = o.firstErr
	if left == 0 && n.isClosing {
		n.isClosing = false
		go k.env.Host.OperationsEnded() // It takes the lock.
	}
	if o.endHook != nil {
		o.endHook(o.firstErr)
		o.endHook = nil
	}
	o.Finish()
	n.startQueued()
	if n.blockedCall != nil {
		k.engine().Complete(n.blockedCall)
	}
}

// Cancel implements pml.Owner. See Lasting.
func (o *Operation) Cancel() {}

// Lasting implements pml.Lasting. One rank cannot cancel a collective.
func (o *Operation) Lasting() error {
	return fmt.Errorf("%w: a collective cannot be canceled", framework.ErrUnsupported)
}

// Release implements pml.Owner.
func (o *Operation) Release() {
	local := o.collState.env.RankResources
	if cap(o.call.Temp) > scratchLimit {
		local.pieces.Give(o.call.Temp)
		o.call.Temp = nil
	}
	if o.isKept {
		o.inUse.Store(false)
		return
	}
	local.freeOperations = append(local.freeOperations, o)
}

// First implements pml.Owner.
func (o *Operation) First() progress.Source { return nil }
