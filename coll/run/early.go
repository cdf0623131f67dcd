package run

import (
	"context"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// An Early carries out a persistent operation without the engine, as a blocking call does. It is
// for schedules in a collective segment. Start takes the steps up to the first one that waits for
// another rank. Wait takes the others, on which no other rank depends. An operation that is not
// complete after a short poll in Wait is promoted to one of the engine, with its remaining
// steps. So is one that another call than Wait uses.
//
// State.busyState is busyEarly between Start and Wait. Claim makes it busyInCall, and guards the fields.
type Early struct {
	collState     *State
	keptOperation *Operation
	programCall   *Call
	choice        *coll.Choice
	instance      coll.Instance
	schedule      coll.Schedule
	// No other rank waits for this one after Steps[:lastGive].
	lastGive int
	call     coll.Call
	nextStep int
}

// NewEarly returns an Early for a call, or nil if it needs the engine. It is called inside Do, after
// OpenEarly.
func (k *State) NewEarly(kept *Operation, x *Call) *Early {
	if k.env.IsThreadRank || k.comparesCalls || x.NeighborChoice != nil || x.Packing != nil || k.env.HasHooks {
		return nil
	}
	choice, err := k.algorithmFor(x)
	if err != nil {
		return nil
	}
	r := &Early{collState: k, keptOperation: kept, programCall: x, choice: choice, instance: k.instance(choice.Component)}
	gives, ok := framework.As[coll.Notifier](r.instance)
	if !ok {
		return nil
	}
	k.plan(&r.schedule, new(coll.Args), choice.Algorithm, x)
	for i := range r.schedule.Steps {
		s := &r.schedule.Steps[i]
		switch {
		case s.Kind == coll.Own && gives.IsAwaitedByPeers(s):
			r.lastGive = i + 1
		case s.Kind == coll.Own, s.Kind == coll.Copy && s.N <= quickBytes, s.Kind == coll.Combine && s.N <= quickBytes && x.Reducer.IsQuick:
		default:
			return nil
		}
	}
	if r.schedule.Temp > 0 {
		return nil
	}
	r.call = coll.Call{Buffers: coll.Buffers{In: x.In, Out: x.Out, Shared: r.instance.Memory()}, Reducer: x.Reducer}
	return r
}

// IsActive reports whether the operation is between Start and Wait. r may be nil.
func (r *Early) IsActive() bool {
	return r != nil && atomic.LoadUint32(&r.collState.busyState) == busyEarly
}

// Claim takes the operation, which is between Start and Wait. Finish or Promote ends the claim. r
// may be nil.
func (r *Early) Claim() bool {
	return r.IsActive() && atomic.CompareAndSwapUint32(&r.collState.busyState, busyEarly, busyInCall)
}

// Begin starts the operation. It returns false if the engine has to start it, and the request of the
// operation if it is promoted.
func (r *Early) Begin() (q Handle, isStarted bool) {
	k := r.collState
	if k.nonblocking.unfinishedCount.Load() > 0 || !k.Acquire() {
		return Handle{}, false
	}
	if k.env.CommState.Load() != 0 || k.brokenErr.Load() != nil {
		k.Exit()
		return Handle{}, false
	}
	r.call.Sequence, r.nextStep = k.operationCount, 0
	k.nextTag()
	isDone, err := r.proceed()
	if err != nil || !isDone && r.nextStep < r.lastGive {
		return r.Promote(err), true
	}
	cpu.Store32(&k.busyState, busyEarly)
	return Handle{}, true
}

// proceed takes steps up to the first one that is not done. The operation is claimed.
func (r *Early) proceed() (isDone bool, err error) {
	for ; r.nextStep < len(r.schedule.Steps); r.nextStep++ {
		s := &r.schedule.Steps[r.nextStep]
		switch s.Kind {
		case coll.Own:
			if isDone, err := r.instance.PollStep(s, &r.call); !isDone || err != nil {
				return false, err
			}
		case coll.Copy:
			r.call.Copy(s)
		default:
			r.call.Apply(r.call.At(s.Buf, s.N), r.call.At(s.From, s.N))
		}
	}
	return true, nil
}

// Finish polls until the operation is complete, for as long as a blocking call polls at most.
// Otherwise it promotes the operation, and returns its request. The operation is claimed.
func (r *Early) Finish() (q Handle, isComplete bool) {
	isDone, err := r.proceed()
	if isDone {
		r.collState.Exit()
		return Handle{}, true
	}
	e := r.collState.engine()
	e.Lock()
	for polls := e.PollBudget(); !isDone && err == nil && polls > 0 && !e.Wanted() && r.collState.abortErr == nil; polls-- {
		cpu.Pause()
		isDone, err = r.proceed()
	}
	e.Release()
	if isDone {
		r.collState.Exit()
		return Handle{}, true
	}
	return r.Promote(err), false
}

// Promote continues the operation in the engine. err is the error of its next step, or nil. The
// operation is claimed.
func (r *Early) Promote(err error) Handle {
	k := r.collState
	defer k.Exit()
	o := k.operationOf(r.keptOperation, r.programCall, r.choice)
	o.call.Sequence = r.call.Sequence
	e := k.engine()
	e.Lock()
	defer e.Release()
	o.prepare(k.operationCount)
	k.nonblocking.unfinishedCount.Add(1)
	k.nonblocking.running = append(k.nonblocking.running, o)
	o.execution.Begin(&o.schedule)
	o.execution.CompleteFirst(r.nextStep)
	q := Handle{&o.Request, o.Generation()}
	if err != nil {
		o.stop(err)
	}
	o.advance()
	return q
}

// OpenEarly opens the instances of a communicator before its first operation, because nonblocking
// operations open none. It is called inside Do.
func (k *State) OpenEarly(ctx context.Context) error {
	if err := k.prepare(); err != nil {
		return err
	}
	if k.hasUnopened && !k.comparesCalls {
		return k.open(ctx)
	}
	return nil
}

// NewKept returns the operation that a persistent one reuses.
func (r *Rank) NewKept() *Operation {
	o := &Operation{isKept: true}
	o.Init(r.engine, o)
	return o
}

// takeKept returns o for its next use, or nil if it is in use, or nil itself.
func (o *Operation) takeKept() *Operation {
	if o == nil || !o.inUse.CompareAndSwap(false, true) {
		return nil
	}
	return o
}
