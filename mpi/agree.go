package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/agreement"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/pml"
)

// Agree returns the bitwise AND of the flags of all live members (MPIX_Comm_agree). It is collective over them, and
// works although members have failed, the communicator is revoked or its collectives are broken. All members return
// the same value and the same error.
//
// Beside the value, it returns ErrProcFailed with the ranks of the failed members (ProcFailedError) that not all members had
// acknowledged by AckFailed. Agree returns no failure that Failed lacks. A member that has closed the communicator or its
// session takes no part, and is no failure.
//
// If ctx ends, the wait ends, and the flags count in the value of the other members. The communicator's collectives
// are broken then. The next Agree or Shrink of this rank waits until that Agree is decided.
//
// It returns ErrPending if another goroutine of the rank is in Agree or Shrink of the communicator, and an error in all members if
// some call Agree and others Shrink. It returns ErrUnsupported if the launcher's client sends no notes, and ErrTransport if the launcher is lost.
func (c *Comm) Agree(ctx context.Context, flags uint64) (value uint64, err error) {
	a := c.agreement()
	if err := a.begin(ctx, agreement.Agree, "agree"); err != nil {
		return 0, fmt.Errorf("agree: %w", err)
	}
	defer func() { a.end(err) }()
	if value, err = a.agree(ctx, flags); err != nil {
		err = ended(ctx, "agree", err)
	}
	return value, err
}

func (a *agreements) agree(ctx context.Context, flags uint64) (uint64, error) {
	var held *uint64
	if a.beginCommon() {
		a.reductionFlags[0] = flags
		hasValue, err := a.c.agreeByReduction(ctx, a.reductionFlags[:1], a.reductionFlags[1:])
		isDecided := a.endCommon(err)
		_, isMismatch := errors.AsType[*run.MismatchError](err)
		switch {
		case isDecided:
			a.logOutcome(&agreement.Outcome{Operation: agreement.Agree, Flags: a.reductionFlags[1]})
			return a.reductionFlags[1], nil
		case isMismatch || errors.Is(err, ErrClosed):
			return 0, err
		case hasValue:
			held = &a.reductionFlags[1]
		}
	}
	call := a.call(agreement.Agree)
	call.Flags = flags
	o, err := a.run(ctx, agreementCall{Call: call, value: held})
	if err != nil {
		return 0, err
	}
	if err := a.check(&o); err != nil {
		return 0, err
	}
	return o.Flags, a.c.failuresWithout(&o)
}

// beginCommon begins the common case of Agree, unless a failure is known or a note has arrived.
func (a *agreements) beginCommon() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isClosed || a.c.size == 1 || a.machine.IsPending() || a.machine.Requested() || a.c.collective.Broken() != nil || a.c.Revoked() {
		return false
	}
	a.stage, a.callTicks = stageCommon, 0
	a.startTicking()
	return true
}

// endCommon ends the common case, and reports whether the instance is decided.
func (a *agreements) endCommon(err error) (isDecided bool) {
	a.input(func(m *agreement.Machine) {
		a.stage = stageNone
		if isDecided = err == nil && !a.isClosed; isDecided {
			m.Complete()
		}
	})
	return isDecided
}

// agreeByReduction is the common case of Agree, an allreduce of the flags and a barrier. A rank that leaves the barrier returns
// no error, since all members have the value. hasValue reports whether value is complete.
func (c *Comm) agreeByReduction(ctx context.Context, flags, value []uint64) (hasValue bool, err error) {
	k := &c.collective
	if err := k.Enter(ctx); err != nil {
		return false, err
	}
	defer k.Exit()
	var x run.Call
	if err = reduction(&x, coll.Allreduce, flags, value, BitAnd[uint64](), true); err == nil {
		err = k.Inline(ctx, &x)
	}
	if hasValue = err == nil; hasValue {
		err = k.Inline(ctx, &run.Call{Op: coll.Barrier})
	}
	if _, agreed := errors.AsType[*run.MismatchError](err); err != nil && !agreed {
		err = k.FailEntered(ended(ctx, "agree", err))
	}
	return hasValue, err
}

// check enters the failures of an outcome, and returns the error of an instance without a result.
func (a *agreements) check(o *agreement.Outcome) error {
	c := a.c
	if len(o.MixedRanks) > 0 {
		return fmt.Errorf("members called both Agree (rank %d) and Shrink (rank %d): all members have to make the same calls in the same order", o.MixedRanks[0], o.MixedRanks[1])
	}
	known, _ := c.failed()
	slices.Sort(known)
	for _, rank := range o.FailedRanks {
		switch {
		case rank == c.rank:
			return pml.ProcFailed(c.spec.Members, []int{rank}, "the other members consider this process dead")
		case !hasRank(known, rank):
			c.session.process.ReportFailure(c.spec.Members.Member(rank).Incarnation, "reported to another member")
		}
	}
	return nil
}

// failuresWithout returns ErrProcFailed with the failures that not all members had acknowledged, or nil.
func (c *Comm) failuresWithout(o *agreement.Outcome) error {
	ranks := slices.DeleteFunc(slices.Clone(o.FailedRanks), func(rank int) bool { return hasRank(o.AckedRanks, rank) })
	if len(ranks) == 0 {
		return nil
	}
	return pml.ProcFailed(c.spec.Members, ranks, "not acknowledged by all members")
}

// hasRank reports whether an ascending list has a rank.
func hasRank(ranks []int, rank int) bool {
	_, isFound := slices.BinarySearch(ranks, rank)
	return isFound
}
