package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// patience is the longest wait for the request of another member.
const patience = 30 * time.Second

// recover continues without the members that have ended. All other members call it, since
// their contexts end.
func (m *member) recover(ctx context.Context) error {
	m.disconnect()
	m.pendingRequest = nil
	if m.pendingIntegration != nil {
		integration, err := m.pendingIntegration.Wait(ctx)
		m.pendingIntegration = nil
		if err == nil { // It was complete before the failure.
			return m.adopt(ctx, integration)
		}
	}
	for m.comm == nil {
		change, ok, err := m.session.ResourceChange(ctx, m.mainPset)
		switch {
		case errors.Is(err, mpi.ErrProcFailed): // Under launchers other than ferry run, rank 0 of the job holds the sets.
			// Without the class, which isFailure accepts.
			err = fmt.Errorf("the job cannot change any more: %v", err)
		case err != nil:
		case !ok:
			err = m.awaitChange()
		case change.Type == mpi.ChangeFailed:
			err = m.removeFailed(ctx, change.Delta)
		default:
			// Members may be one round apart. All of them get the state that was published last.
			if err = m.publish(ctx, change); err == nil {
				err = m.integrateNow(ctx, change.Delta)
			} else if errors.Is(err, mpi.ErrPset) {
				err = nil // The change has been undone.
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeFailed requests the replacement of the members that have ended, as the first of the
// others. The others wait for the change.
func (m *member) removeFailed(ctx context.Context, failed string) error {
	all, err := m.session.Group(ctx, m.mainPset)
	if err != nil {
		return err
	}
	ended, err := m.session.Group(ctx, failed)
	if err != nil {
		return err
	}
	if all.Difference(ended).Rank() != 0 {
		return m.awaitChange()
	}
	m.oldSets = append(m.oldSets, failed)
	if m.undoneCount < attempts && !m.isOver() {
		_, err = m.session.PsetOp(ctx, mpi.PsetReplace, []string{m.mainPset}, mpi.PsetArgs{Add: ended.Size(), Sub: ended.Size(), Partial: true})
		if !errors.Is(err, mpi.ErrUnsupported) {
			return ignoreOthers(err)
		}
	}
	_, err = m.session.PsetOp(ctx, mpi.PsetShrink, []string{m.mainPset}, mpi.PsetArgs{})
	return ignoreOthers(err)
}

// awaitChange waits for a change that was not there before.
func (m *member) awaitChange() error {
	select {
	case <-m.watch.changeEvents:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("no change of %q for %v after a failure", m.mainPset, patience)
	}
}
