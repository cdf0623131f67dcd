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
		err := m.joinByChange(ctx)
		if isUndone(err) {
			return errLeaves // The other processes continue without this one.
		}
		return err
	}
	group, err := m.session.Group(ctx, world.Name)
	if err != nil {
		return err
	}
	if err := m.connect(ctx, world.Name, group); err != nil {
		return err
	}
	m.savedState = initialCheckpoint(m.gridSize, group.Rank(), group.Size())
	m.mustRestore = m.comm.Size() < group.Size()
	return nil
}

// joinByChange integrates the change that has added this process.
func (m *member) joinByChange(ctx context.Context) error {
	integration, err := m.session.Integrate(ctx, "mpi://SELF", "")
	if err != nil {
		return err
	}
	m.disturbAt(ctx, pointAdopt)
	if err := m.fetch(ctx, integration.Pset); err != nil {
		return err
	}
	group, err := m.session.Group(ctx, integration.Pset)
	if err != nil {
		return err
	}
	return m.adopt(ctx, integration, group)
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
func (m *member) connect(ctx context.Context, pset string, group *mpi.Group) (err error) {
	m.mainPset = pset
	for err == nil {
		m.disturbAt(ctx, pointConnect)
		var comm *mpi.Comm
		if comm, err = mpi.CommFromGroup(ctx, group, "org.example.shallow"); err == nil {
			m.disconnect()
			m.comm = comm
			return nil
		}
		var missing *mpi.MissingError
		if !errors.As(err, &missing) || !m.areNew(missing.Missing) {
			return err
		}
		others, groupErr := without(group, append(missing.Failed, missing.Missing...))
		if groupErr != nil || others.Size() == group.Size() { // The holder of the addresses of members has died.
			return errors.Join(err, groupErr)
		}
		m.recoveryCount++
		group, err = others, nil
	}
	return err
}

// areNew reports whether all of these processes were added by the change that this member adopts. They have no rows yet. One
// of them is missing if the holder of the process sets died before the others had its address.
func (m *member) areNew(procs []mpi.Proc) bool {
	return !slices.ContainsFunc(procs, func(p mpi.Proc) bool {
		return m.comm == nil || slices.Contains(m.comm.Group().Members(), p)
	})
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

// integrate agrees on a change with the added processes. Their rows are those of the checkpoint. The holder of the process sets
// may die before all members have the result or the group of the new main set. The members of the old set therefore agree
// that they have both, and otherwise continue as after an undone change.
func (m *member) integrate(ctx context.Context, p plan) error {
	m.disturbAt(ctx, pointIntegrate)
	isFirst := m.comm.Rank() == 0
	integration, group, err := m.integrateChange(ctx, p.DeltaPset)
	if err != nil && !isUndone(err) {
		return err
	}
	flags := uint64(isDone)
	if err != nil {
		flags = 0
	}
	flags, hasDeaths, err := m.agree(ctx, flags)
	switch {
	case err != nil:
		return err
	case integration.Terminate:
		return errLeaves
	case flags&isDone == 0:
		m.replacement.undoneCount++
		if hasDeaths {
			return m.shrink(ctx)
		}
		return nil
	}
	if isFirst { // If it leaves, the server finishes the change, which is a user's.
		if err := m.session.FinishChange(ctx, p.DeltaPset); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
	}
	m.oldSets = append(m.oldSets, m.mainPset, p.DeltaPset, m.replacement.failedPset)
	return m.adopt(ctx, integration, group)
}

// integrateChange returns the result of a change, and the group of the new main set in a process that stays.
func (m *member) integrateChange(ctx context.Context, delta string) (mpi.Integration, *mpi.Group, error) {
	integration, err := m.session.Integrate(ctx, delta, "")
	if err != nil || integration.Terminate {
		return integration, nil, err
	}
	m.disturbAt(ctx, pointAdopt)
	group, err := m.session.Group(ctx, integration.Pset)
	return integration, group, err
}

// isUndone reports whether err is the end of a change by a death, by a deadline, or by a user who withdraws it.
// Its sets no longer exist then.
func isUndone(err error) bool {
	return errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrTimeout) || errors.Is(err, mpi.ErrCanceled) || errors.Is(err, mpi.ErrPset)
}

// adopt replaces the main set by that of an integrated change, which has these members.
func (m *member) adopt(ctx context.Context, integration mpi.Integration, group *mpi.Group) error {
	m.changeCount++
	m.replacement, m.mustRestore = replacement{}, true
	return m.connect(ctx, integration.Pset, group)
}
