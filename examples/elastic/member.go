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
	// The main set, the processes that compute.
	pset string
	// Of the main set; nil during a recovery.
	comm *mpi.Comm
	// For rank 0 to delete.
	oldSets []string
	watch   watch // Of the main set.

	// Of rank 0, with -async.
	request *mpi.Future[[]string]
	// In progress, with -async.
	integration *mpi.Future[mpi.Integration]
	// Of the latest integration.
	delta string
	// Consecutive changes that were undone.
	undone int
}

// state is everything that an added process needs to continue. It travels as data of the main set.
type state struct {
	// Completed rounds of work.
	Round int64
	// Integrated changes.
	Changes int
	// Number of processes at the start.
	Initial int
	// With -to, the way is back to Initial.
	IsBack bool
	End    time.Time // With -for.
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
		m.state = state{Initial: world.Size, End: time.Now().Add(m.duration)}
		if m.to == world.Size {
			return fmt.Errorf("-to %d: the job has that many processes already", m.to)
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
	m.state.Changes++
	m.request, m.integration, m.undone = nil, nil, 0
	m.oldSets = append(m.oldSets, m.pset, m.delta)
	return m.connect(ctx, integration.Pset)
}

// connect makes the communicator of a set, and watches its members.
func (m *member) connect(ctx context.Context, pset string) error {
	m.pset = pset
	group, err := m.session.Group(ctx, pset)
	if err != nil {
		return err
	}
	if m.delta != "" && group.Rank() == 0 {
		if err := m.session.FinishChange(ctx, m.delta); err != nil {
			return err
		}
	}
	m.watch.stop()
	m.watch = newWatch(ctx, m.session, pset)
	if m.comm, err = mpi.CommFromGroup(m.watch.alive, group, "org.example.elastic"); err != nil {
		return err
	}
	if m.comm.Rank() == 0 && m.duration > 0 {
		fmt.Printf("%d processes after %d rounds\n", m.comm.Size(), m.state.Round)
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
