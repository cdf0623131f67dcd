package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

var (
	errEnds   = errors.New("the job ends")
	errLeaves = errors.New("this process leaves the job")
	errEnded  = errors.New("a member has ended")
)

// isFailure reports whether err follows from the end of a member. ErrBroken is from a
// member that left a collective because of such an end.
func isFailure(err error) bool {
	return errors.Is(err, errEnded) || errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrBroken)
}

// A member is this process as one of those that compute.
type member struct {
	options
	session *mpi.Session
	state   state
	// The processes that compute.
	mainPset string
	// Of the main set; nil during a recovery.
	comm *mpi.Comm
	// For rank 0 to delete.
	oldSets []string
	watch   watch // Of the main set.

	// Of rank 0, with -async.
	pendingRequest *mpi.Future[[]string]
	// With -async.
	pendingIntegration *mpi.Future[mpi.Integration]
	// Of the latest integration.
	lastDelta string
	// Consecutive changes that were undone.
	undoneCount int
}

// state is everything that an added process needs to continue. It travels as data of the main set.
type state struct {
	RoundsDone int64
	// Integrated changes.
	ChangeCount int
	// Number of processes.
	InitialSize int
	// With -to, the way is back to InitialSize.
	IsBack  bool
	EndTime time.Time // With -for.
}

const stateKey = "state"

// join makes this process a member of mpi://WORLD at the start of the job, and later by the
// integration of the change that added it.
func (m *member) join(ctx context.Context) error {
	world, err := m.session.PsetInfo(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	if !world.Dynamic {
		m.state = state{InitialSize: world.Size, EndTime: time.Now().Add(m.runTime)}
		if m.targetSize == world.Size {
			return fmt.Errorf("-to %d: the job has that many processes already", m.targetSize)
		}
		return m.connect(ctx, world.Name)
	}
	integration, err := m.session.Integrate(ctx, "mpi://SELF", "")
	if isUndone(err) {
		return errLeaves // The other processes continue without this one.
	}
	if err != nil {
		return err
	}
	return m.adopt(ctx, integration)
}

// adopt replaces the main set and the communicator by those of an integrated change.
func (m *member) adopt(ctx context.Context, integration mpi.Integration) error {
	m.disconnect()
	if integration.Terminate {
		return errLeaves
	}
	value, err := m.session.LookupData(ctx, integration.Pset, stateKey)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(value, &m.state); err != nil {
		return err
	}
	m.state.ChangeCount++
	m.pendingRequest, m.pendingIntegration, m.undoneCount = nil, nil, 0
	m.oldSets = append(m.oldSets, m.mainPset, m.lastDelta)
	return m.connect(ctx, integration.Pset)
}

// connect makes the communicator of a set, and watches its members.
func (m *member) connect(ctx context.Context, pset string) error {
	m.mainPset = pset
	group, err := m.session.Group(ctx, pset)
	if err != nil {
		return err
	}
	if m.lastDelta != "" && group.Rank() == 0 {
		if err := m.session.FinishChange(ctx, m.lastDelta); err != nil {
			return err
		}
	}
	m.watch.stopWatching()
	m.watch = newWatch(ctx, m.session, pset)
	if m.comm, err = mpi.CommFromGroup(m.watch.aliveCtx, group, "org.example.elastic"); err != nil {
		return err
	}
	if m.comm.Rank() == 0 && m.runTime > 0 {
		fmt.Printf("%d processes after %d rounds\n", m.comm.Size(), m.state.RoundsDone)
	}
	return nil
}

// disconnect closes the communicator.
func (m *member) disconnect() {
	if m.comm != nil {
		m.comm.Close()
		m.comm = nil
	}
}

// deleteOldSets deletes the sets of earlier changes. All members use the new set, since they
// have worked on its communicator.
func (m *member) deleteOldSets(ctx context.Context) {
	if m.comm.Rank() == 0 {
		for _, name := range m.oldSets {
			_ = m.session.DeletePset(ctx, name) // ErrPset for mpi://WORLD, and for the sets of others.
		}
	}
	m.oldSets = nil
}
