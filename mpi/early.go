package mpi

import (
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// earlyRun carries out a persistent operation without the engine, as a blocking call does. Start takes the steps up to the first
// one that waits for another member, and Wait takes the others. It is for schedules in a collective segment. Other members wait for none of
// the steps that Wait takes. An operation that is neither complete at Start nor after a short poll in Wait is promoted to
// one of the engine, with its remaining steps. So is one that another call than Wait uses.
// Between Start and Wait, busy of the communicator is busyEarly, and claim makes it busyInCall. claim guards the fields.
type earlyRun struct {
	k        *collective
	kept     *operation
	x        *call
	choice   *coll.Choice
	instance coll.Instance
	schedule coll.Schedule
	// After Steps[:lastGive], no other member waits for this one.
	lastGive int
	call     coll.Call
	next     int // Step to take next.
}

// States of collective.busy.
const (
	busyInCall = 1 // A goroutine is in a call.
	busyEarly  = 2 // An earlyRun is between Start and Wait.
)

// newEarly returns an earlyRun for a call, or nil if it needs the engine. Called inside do, after openEarly.
func (k *collective) newEarly(kept *operation, x *call) *earlyRun {
	c := k.comm()
	if c.threadRank != nil || k.comparesCalls || x.choice != nil || x.packing != nil || c.session.process.collectiveHooks != nil {
		return nil
	}
	choice, err := k.algorithmFor(x)
	if err != nil {
		return nil
	}
	r := &earlyRun{k: k, kept: kept, x: x, choice: choice, instance: k.instance(choice.Component)}
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
		case s.Kind == coll.Own, s.Kind == coll.Copy && s.N <= quickBytes, s.Kind == coll.Combine && s.N <= quickBytes && x.reducer.IsQuick:
		default:
			return nil
		}
	}
	if r.schedule.Temp > 0 {
		return nil
	}
	r.call = coll.Call{Buffers: coll.Buffers{In: x.in, Out: x.out, Shared: r.instance.Memory()}, Reducer: x.reducer}
	return r
}

// isActive reports whether the operation is between Start and Wait. r may be nil.
func (r *earlyRun) isActive() bool { return r != nil && atomic.LoadUint32(&r.k.busy) == busyEarly }

// claim takes the operation, which is between Start and Wait. r may be nil. It ends with exit of the collective.
func (r *earlyRun) claim() bool {
	return r.isActive() && atomic.CompareAndSwapUint32(&r.k.busy, busyEarly, busyInCall)
}

// begin starts the operation. It returns false if the engine has to start it, and the request of the operation if it is promoted.
func (r *earlyRun) begin() (q Request, isStarted bool) {
	k := r.k
	if k.started.n.Load() > 0 || !k.acquire() {
		return Request{}, false
	}
	if k.comm().state.Load() != 0 || k.broken.Load() != nil {
		k.exit()
		return Request{}, false
	}
	r.call.Sequence, r.next = k.operationCount, 0
	k.nextTag()
	isDone, err := r.proceed()
	if err != nil || !isDone && r.next < r.lastGive {
		return r.promote(err), true
	}
	cpu.Store32(&k.busy, busyEarly)
	return Request{}, true
}

// proceed takes steps up to the first one that is not done. Claimed.
func (r *earlyRun) proceed() (isDone bool, err error) {
	for ; r.next < len(r.schedule.Steps); r.next++ {
		s := &r.schedule.Steps[r.next]
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

// finish polls until the operation is complete, for as long as a blocking call polls at most. Otherwise it promotes the
// operation, and returns its request. Claimed.
func (r *earlyRun) finish() (q Request, isComplete bool) {
	isDone, err := r.proceed()
	if isDone {
		r.k.exit()
		return Request{}, true
	}
	e := r.k.engine()
	e.Lock()
	for polls := e.PollBudget(); !isDone && err == nil && polls > 0 && !e.Wanted() && r.k.abortErr == nil; polls-- {
		cpu.Pause()
		isDone, err = r.proceed()
	}
	e.Release()
	if isDone {
		r.k.exit()
		return Request{}, true
	}
	return r.promote(err), false
}

// promote continues the operation in the engine. err is the error of its next step, or nil. Claimed.
func (r *earlyRun) promote(err error) Request {
	k := r.k
	defer k.exit()
	o := k.operationOf(r.kept, r.x, r.choice)
	o.call.Sequence = r.call.Sequence
	e := k.engine()
	e.Lock()
	defer e.Release()
	o.prepare(k.operationCount)
	k.started.n.Add(1)
	k.started.running = append(k.started.running, o)
	o.run.Begin(&o.schedule)
	o.run.CompleteFirst(r.next)
	q := Request{&o.Request, o.Generation()}
	if err != nil {
		o.stop(err)
	}
	o.advance()
	return q
}
