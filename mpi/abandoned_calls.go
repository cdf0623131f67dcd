package mpi

import (
	"fmt"

	"github.com/ferrympi/ferry/agreement"
)

// A call of Agree or Shrink is abandoned when its context ends. Its rank still takes part until the call of the other members completes.

// abandon continues the instance without its call. It returns false if the call must wait for the outcome, or has it.
func (a *agreements) abandon(op agreement.Operation) (mayReturn bool) {
	a.input(func(m *agreement.Machine) {
		if mayReturn = m.IsPending() && (op != agreement.Shrink || m.Exclude()); mayReturn {
			a.stage = stageAbandoned
		}
	})
	return mayReturn
}

// startLater queues a call after the end of its context, so that its flags count in the next instance. It returns false if no call is pending.
func (a *agreements) startLater(call agreement.Call) (isQueued bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.machine.IsPending() {
		return false
	}
	call.IsExcluded = call.Operation == agreement.Shrink
	a.lateCalls = append(a.lateCalls, call)
	return true
}

// followAbandoned takes the outcomes of abandoned instances, and starts the calls after them. It returns the outcomes of
// communicators that this rank refuses (refuseShrunk). mu held.
func (a *agreements) followAbandoned() (refused []*agreement.Outcome) {
	for a.stage == stageAbandoned {
		o, isDecided := a.machine.Result()
		if !isDecided {
			break
		}
		a.stage = stageNone
		if a.follow(&o) {
			refused = append(refused, &o)
		}
		if len(a.lateCalls) > 0 && !a.machine.IsPending() {
			call := a.lateCalls[0]
			a.lateCalls = a.lateCalls[1:]
			a.startAbandoned(call, nil)
		}
	}
	return refused
}

// follow continues a Shrink after an instance that this rank does not wait for. It reports whether the outcome has a communicator that
// includes this rank. mu is held.
func (a *agreements) follow(o *agreement.Outcome) (isRefused bool) {
	isExcluded := hasRank(o.ExcludedRanks, a.c.rank)
	switch proposed := a.confirmedOutcome; {
	case o.Operation != agreement.Shrink || len(o.MixedRanks) > 0:
	case proposed != nil:
		if !a.c.isConfirmed(proposed, o) && a.c.haveChanged(proposed, o) {
			// After a wire-up, no communicator has the id of the outcome.
			a.startAbandoned(agreement.Call{Operation: agreement.Shrink, Flags: 1, IsExcluded: true, ID: proposed.ID}, nil)
		}
	case o.WireUp:
		call := agreement.Call{Operation: agreement.Shrink, IsExcluded: true}
		if isExcluded {
			call.Flags = 1
		}
		a.startAbandoned(call, o)
	default:
		return !isExcluded && !hasRank(o.FailedRanks, a.c.rank)
	}
	return false
}

// startAbandoned takes part in the next instance without a caller. mu held.
func (a *agreements) startAbandoned(call agreement.Call, confirms *agreement.Outcome) {
	if a.machine.Start(call, nil) == nil {
		a.confirmedOutcome, a.stage = confirms, stageAbandoned
		a.startTicking()
	}
}

// refuseShrunk announces that this rank is not in the communicator of an outcome.
func (c *Comm) refuseShrunk(o *agreement.Outcome) {
	if g, err := c.group.Incl(c.survivors(o)...); err == nil {
		c.refuse(o.ID, g, fmt.Errorf("the context of Shrink has ended in rank %d", c.rank))
	}
}
