package main

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/mpi"
)

// member is this process as one of those that compute. It works in phases. A phase that fails in one member ends in all,
// because the member revokes the communicator. All members then agree on the outcome of the phase, and so they do
// the same next.
type member struct {
	options
	*basin
	session *mpi.Session
	// Processes that have died are members until a change removes them.
	mainPset string
	// Of the live members of the main set, in their order.
	comm       *mpi.Comm
	savedState checkpoint
	// mustRestore is set while members lack rows of their share.
	mustRestore bool
	changeCount int // Integrated ones.
	// Communicators made without dead members.
	recoveryCount int

	replacement replacement // Of rank 0.
	// For rank 0 to delete.
	oldSets []string
	// Of rank 0, the communicator at the last output.
	announcedComm *mpi.Comm
	// Nil until the end.
	finalResult *result
}

// point is a position in the program.
type point int

const (
	pointDecide point = iota
	pointStep
	pointReplicate
	pointRestore
	pointIntegrate
	pointAdopt
	pointConnect
)

func (m *member) disturbAt(ctx context.Context, at point) {
	if m.disturb != nil {
		m.disturb(ctx, m, at)
	}
}

// An outcome is the result of a phase in one member. It is adopted when all members have agreed.
type outcome struct {
	plan   plan
	state  checkpoint
	result *result
}

// Flags of Agree.
const (
	isDone     = 1 << iota // The phase has succeeded.
	isComplete             // No row is lost.
)

// isFailure reports whether an error follows from the death of a process.
func isFailure(err error) bool {
	return errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrRevoked) || errors.Is(err, mpi.ErrBroken) || errors.Is(err, errLost)
}

// runPhase runs a phase, and adopts its outcome.
func (m *member) runPhase(ctx context.Context) error {
	o, phaseErr := m.phase(ctx)
	if phaseErr != nil && !isFailure(phaseErr) {
		return phaseErr
	}
	isAgreed, isIntact, err := m.settle(ctx, phaseErr)
	if err != nil {
		return err
	}
	if isAgreed {
		m.savedState, m.mustRestore, m.finalResult = o.state, false, o.result
	}
	switch {
	case m.finalResult != nil:
		return nil
	case !isIntact:
		return m.shrink(ctx)
	case o.plan.Action == doIntegrate:
		return m.integrate(ctx, o.plan)
	}
	return nil
}

// phase runs the next phase. Rank 0 decides which one.
func (m *member) phase(ctx context.Context) (o outcome, err error) {
	if m.mustRestore {
		o.state, err = m.restore(ctx)
		return o, err
	}
	if o.plan, err = m.decide(ctx); err != nil {
		return o, err
	}
	o.state = m.savedState
	switch o.plan.Action {
	case doSteps:
		o.state, err = m.advance(ctx)
	case doIntegrate:
		o.state, err = m.evacuate(ctx, o.plan)
	case doEnd:
		o.result, err = m.sum(ctx)
	}
	return o, err
}

// settle agrees with all live members on the end of a phase, with the same results in all of them. With isAgreed, each
// has its outcome. With isIntact, none has died, and the communicator is in use.
func (m *member) settle(ctx context.Context, phaseErr error) (isAgreed, isIntact bool, err error) {
	flags := uint64(isDone | isComplete)
	if phaseErr != nil {
		flags &^= isDone
		if err := m.comm.Revoke(); err != nil {
			return false, false, err
		}
	}
	if errors.Is(phaseErr, errLost) {
		flags &^= isComplete
	}
	flags, hasDeaths, err := m.agree(ctx, flags)
	switch {
	case err != nil:
		return false, false, err
	case flags&isComplete == 0 && errors.Is(phaseErr, errLost):
		return false, false, phaseErr
	case flags&isComplete == 0:
		return false, false, errLost
	}
	isAgreed = flags&isDone != 0
	return isAgreed, isAgreed && !hasDeaths, nil
}

// agree returns the flags that all live members have. hasDeaths is set if other members have died.
func (m *member) agree(ctx context.Context, flags uint64) (common uint64, hasDeaths bool, err error) {
	common, err = m.comm.Agree(ctx, flags)
	if errors.Is(err, mpi.ErrProcFailed) {
		return common, true, nil
	}
	return common, false, err
}

// shrink continues without the dead members, from the last checkpoint.
func (m *member) shrink(ctx context.Context) error {
	comm, err := m.comm.Shrink(ctx)
	if err != nil {
		return err
	}
	m.disconnect()
	m.comm, m.mustRestore = comm, true
	m.recoveryCount++
	return nil
}

// disconnect closes the communicator.
func (m *member) disconnect() {
	if m.comm != nil {
		m.comm.Close()
		m.comm = nil
	}
}
