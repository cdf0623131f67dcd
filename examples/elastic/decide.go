package main

import (
	"context"
	"errors"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// An action is the next step of all members after a round.
type action int64

const (
	doWork      action = iota
	doIntegrate        // Enter the integration of a change.
	doAdopt            // Change to the set of the complete asynchronous integration.
	doEnd
)

// A decision is rank 0's, for all members.
type decision struct {
	action action
	// With doIntegrate.
	deltaPset string
}

// broadcast returns the decision of rank 0.
func (d decision) broadcast(ctx context.Context, comm *mpi.Comm) (decision, error) {
	header := []int64{int64(d.action), int64(len(d.deltaPset))}
	if err := mpi.Bcast(ctx, comm, header, 0); err != nil {
		return d, err
	}
	name := make([]byte, header[1])
	copy(name, d.deltaPset)
	err := mpi.Bcast(ctx, comm, name, 0)
	return decision{action(header[0]), string(name)}, err
}

// decide makes the decision of rank 0. Changes arrive in the same way, no matter which process or user
// requests them.
func (m *member) decide(ctx context.Context) (decision, error) {
	switch {
	case m.pendingIntegration != nil && isDone(m.pendingIntegration):
		return decision{action: doAdopt}, nil
	case m.pendingIntegration != nil:
		return decision{action: doWork}, nil
	case m.isOver():
		return decision{action: doEnd}, nil
	case m.targetSize > 0:
		if err := m.requestChange(ctx); err != nil {
			return decision{}, err
		}
	}
	change, ok, err := m.session.ResourceChange(ctx, m.mainPset)
	if err != nil || !ok || change.Type == mpi.ChangeFailed { // aliveCtx ends after a failure.
		return decision{action: doWork}, err
	}
	if err = m.publish(ctx, change); errors.Is(err, mpi.ErrPset) { // It has been undone.
		return decision{action: doWork}, nil
	}
	return decision{doIntegrate, change.Delta}, err
}

func (m *member) isOver() bool {
	if m.targetSize > 0 {
		return m.state.ChangeCount >= m.wantedChanges
	}
	return time.Now().After(m.state.EndTime)
}

// requestChange requests the next change between the initial number of processes and m.targetSize.
func (m *member) requestChange(ctx context.Context) (err error) {
	if m.pendingRequest != nil && !isDone(m.pendingRequest) {
		return nil
	}
	if m.pendingRequest != nil {
		_, err = m.pendingRequest.Wait(ctx)
		m.pendingRequest = nil
		return ignoreOthers(err)
	}
	op, args := m.nextChange()
	if m.isAsync {
		m.pendingRequest = m.session.PsetOpAsync(op, []string{m.mainPset}, args)
		return nil
	}
	_, err = m.session.PsetOp(ctx, op, []string{m.mainPset}, args)
	return ignoreOthers(err)
}

// nextChange returns the next change, and turns at both ends of the way.
func (m *member) nextChange() (mpi.PsetOp, mpi.PsetArgs) {
	size := m.comm.Size()
	from, to := m.state.InitialSize, m.targetSize
	if m.state.IsBack {
		from, to = to, from
	}
	if size == to {
		m.state.IsBack = !m.state.IsBack
		to = from
	}
	n := max(to-size, size-to)
	if !m.isOneChange {
		n = 1
	}
	if to > size {
		return mpi.PsetGrow, mpi.PsetArgs{Add: n}
	}
	return mpi.PsetShrink, mpi.PsetArgs{Sub: n}
}

// ignoreOthers ignores that a request is refused because of a change of a user, or because a
// member has ended. Queries return both.
func ignoreOthers(err error) error {
	if errors.Is(err, mpi.ErrPending) || errors.Is(err, mpi.ErrProcFailed) {
		return nil
	}
	return err
}

func isDone[T any](f *mpi.Future[T]) bool {
	select {
	case <-f.Done():
		return true
	default:
		return false
	}
}
