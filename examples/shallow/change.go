package main

import (
	"context"
	"errors"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

var errLeaves = errors.New("this process leaves the job")

// join makes this process a member of mpi://WORLD at the start of the job, and later by the integration of the change that
// added it.
func (m *member) join(ctx context.Context) error {
	world, err := m.session.PsetInfo(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	if world.Dynamic {
		integration, err := m.session.Integrate(ctx, "mpi://SELF", "")
		if isUndone(err) {
			return errLeaves // The other processes continue without this one.
		}
		if err != nil {
			return err
		}
		if err := m.fetch(ctx, integration.Pset); err != nil {
			return err
		}
		return m.adopt(ctx, integration)
	}
	if err := m.connect(ctx, world.Name); err != nil {
		return err
	}
	group, err := m.session.Group(ctx, world.Name)
	if err != nil {
		return err
	}
	m.savedState = initialCheckpoint(m.gridSize, group.Rank(), group.Size())
	m.mustRestore = m.comm.Size() < group.Size()
	return nil
}

// initialCheckpoint returns the state of a rank before the first step, without communication.
func initialCheckpoint(grid, rank, ranks int) (c checkpoint) {
	first, rows := share(grid, rank, ranks)
	c.ownBlock = newBlock(grid, first, rows)
	if ranks > 1 {
		first, rows = share(grid, (rank+ranks-1)%ranks, ranks)
		c.otherCopies = []block{newBlock(grid, first, rows)}
	}
	return c
}

// connect makes the communicator of the live members of a set. All of them learn of a death before the communicator exists from
// the same error.
func (m *member) connect(ctx context.Context, pset string) error {
	m.mainPset = pset
	group, err := m.session.Group(ctx, pset)
	for err == nil {
		m.disturbAt(ctx, pointConnect)
		var comm *mpi.Comm
		if comm, err = mpi.CommFromGroup(ctx, group, "org.example.shallow"); err == nil {
			m.disconnect()
			m.comm = comm
			return nil
		}
		var missing *mpi.MissingError
		if !errors.As(err, &missing) || len(missing.Missing) > 0 {
			return err
		}
		m.recoveryCount++
		group, err = without(group, missing.Failed)
	}
	return err
}

// without returns the members of a group that are not in a list.
func without(group *mpi.Group, failed []mpi.Proc) (*mpi.Group, error) {
	var ranks []int
	for rank, p := range group.Members() {
		if slices.Contains(failed, p) {
			ranks = append(ranks, rank)
		}
	}
	return group.Excl(ranks...)
}

// integrate agrees on a change with the added processes. Their rows are those of the checkpoint.
func (m *member) integrate(ctx context.Context, p plan) error {
	m.disturbAt(ctx, pointIntegrate)
	isFirst := m.comm.Rank() == 0
	integration, err := m.session.Integrate(ctx, p.DeltaPset, "")
	if isUndone(err) {
		m.replacement.undoneCount++
		return nil
	}
	if err != nil {
		return err
	}
	if isFirst && !integration.Terminate { // Otherwise the server finishes the change, which is a user's.
		if err := m.session.FinishChange(ctx, p.DeltaPset); err != nil {
			return err
		}
	}
	m.oldSets = append(m.oldSets, m.mainPset, p.DeltaPset, m.replacement.failedPset)
	return m.adopt(ctx, integration)
}

// isUndone reports whether err is the end of a change by a death, by a deadline, or by a user who withdraws it.
// Its sets no longer exist then.
func isUndone(err error) bool {
	return errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrTimeout) || errors.Is(err, mpi.ErrCanceled) || errors.Is(err, mpi.ErrPset)
}

// adopt replaces the main set by that of an integrated change.
func (m *member) adopt(ctx context.Context, integration mpi.Integration) error {
	if integration.Terminate {
		return errLeaves
	}
	m.changeCount++
	m.replacement, m.mustRestore = replacement{}, true
	return m.connect(ctx, integration.Pset)
}
