package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

// attempts is the number of consecutive replacements that may be undone before a recovery adds no
// processes. After twice as many undone changes, the program gives up.
const attempts = 3

// publish stores the state for the members of the set that a change makes. Any process of the
// old set may publish it. All members look it up after the integration, and get the last value.
func (m *member) publish(ctx context.Context, change mpi.Change) error {
	value, err := json.Marshal(m.state)
	if err != nil {
		return err
	}
	return m.session.PublishData(ctx, change.Main, stateKey, value)
}

// integrate agrees on a change with the members and the added processes.
func (m *member) integrate(ctx context.Context, delta string) error {
	if m.isAsync {
		m.lastDelta = delta
		m.pendingIntegration = m.session.IntegrateAsync(delta, "")
		return nil
	}
	return m.integrateNow(ctx, delta)
}

func (m *member) integrateNow(ctx context.Context, delta string) error {
	m.lastDelta = delta
	integration, err := m.session.Integrate(ctx, delta, "")
	return m.complete(ctx, integration, err)
}

// awaitIntegration ends an asynchronous integration.
func (m *member) awaitIntegration(ctx context.Context) error {
	integration, err := m.pendingIntegration.Wait(ctx)
	m.pendingIntegration = nil
	return m.complete(ctx, integration, err)
}

// complete adopts the result of an integration. All members have the same one. If the change
// is undone, they continue as before.
func (m *member) complete(ctx context.Context, integration mpi.Integration, err error) error {
	isOwn := m.targetSize > 0 || m.comm == nil // Not a user's.
	switch {
	case err == nil:
		return m.adopt(ctx, integration)
	case isUndone(err) && !(isOwn && m.undoneCount >= 2*attempts):
		m.undoneCount++
		return nil
	}
	return fmt.Errorf("%d changes undone: %v", m.undoneCount, err) // Without the class, which isFailure accepts.
}

// isUndone reports whether err is the end of a change by a death, by a deadline, or by a user who withdraws it.
func isUndone(err error) bool {
	return errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrTimeout) || errors.Is(err, mpi.ErrCanceled)
}
