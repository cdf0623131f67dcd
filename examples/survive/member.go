package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// checkpoint is the state of a rank after some steps. It is valid once all members have agreed that
// each of them has it.
type checkpoint struct {
	atStep   int
	ownBlock block
	// Of the ranks before this one.
	otherCopies []block
}

// member is a rank of the computation.
type member struct {
	options
	// Of all ranks at the start. The caller closes it.
	worldComm *mpi.Comm
	// Of the survivors.
	liveComm   *mpi.Comm
	savedState checkpoint
	// mustRestore is set after a Shrink, until all rows have an owner again.
	mustRestore bool

	dieAt int
	// Nil unless the rank kills itself.
	dieNow func()
}

// phase is a part of the computation after which the members agree on its success. It returns the
// state that the rank saves in this case.
type phase func(ctx context.Context) (checkpoint, error)

// Flags of Agree.
const (
	isDone     = 1 << iota // The phase has succeeded.
	isComplete             // No row is lost.
)

// errLost is the end of a computation that cannot be restored.
var errLost = errors.New("a block and its copies are lost: more ranks than -copies have died between two checkpoints")

func newMember(world *mpi.Comm, o options) *member {
	m := &member{options: o, worldComm: world, liveComm: world}
	own := func(rank int) block {
		first, rows := share(o.gridSize, rank, world.Size())
		return newBlock(o.gridSize, first, rows)
	}
	m.savedState.ownBlock = own(world.Rank())
	for k := range m.replicas() {
		m.savedState.otherCopies = append(m.savedState.otherCopies, own(m.before(k+1)))
	}
	return m
}

// close closes the communicator of the last Shrink.
func (m *member) close() {
	if m.liveComm != m.worldComm {
		m.liveComm.Close()
	}
}

// replicas returns the number of copies of each block.
func (m *member) replicas() int { return min(m.copyCount, m.liveComm.Size()-1) }

// before returns the rank k places before this one. This rank copies its block.
func (m *member) before(k int) int {
	return (m.liveComm.Rank() - k + m.liveComm.Size()) % m.liveComm.Size()
}

// after returns the rank k places after this one, a buddy.
func (m *member) after(k int) int { return (m.liveComm.Rank() + k) % m.liveComm.Size() }

// solve computes until the result is checked. A phase that fails in one member ends in all, because
// the member revokes the communicator. So all members call Agree, and get the same outcome.
func (m *member) solve(ctx context.Context) error {
	for {
		run, isLast := m.nextPhase()
		state, err := run(ctx)
		if err != nil && !isFailure(err) {
			return err
		}
		isSaved, isIntact, err := m.settle(ctx, err)
		if err != nil {
			return err
		}
		if isSaved {
			m.savedState, m.mustRestore = state, false
			if isLast {
				return m.report()
			}
		}
		if !isIntact {
			if err := m.shrink(ctx); err != nil {
				return err
			}
		}
	}
}

// nextPhase returns the phase that follows from the state of the rank.
func (m *member) nextPhase() (run phase, isLast bool) {
	switch {
	case m.mustRestore:
		return m.restore, false
	case m.savedState.atStep < m.stepCount:
		return m.advance, false
	}
	return m.check, true
}

// isFailure reports whether an error follows from the death of a rank.
func isFailure(err error) bool {
	return errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrRevoked) || errors.Is(err, mpi.ErrBroken) || errors.Is(err, errLost)
}

// settle agrees with all live members on the end of a phase, and has the same results in all of
// them. With isSaved, each has its new state. With isIntact, none has died, and the communicator is in
// use.
func (m *member) settle(ctx context.Context, phaseErr error) (isSaved, isIntact bool, err error) {
	flags := uint64(isDone | isComplete)
	if phaseErr != nil {
		flags &^= isDone
		if err := m.liveComm.Revoke(); err != nil {
			return false, false, err
		}
	}
	if errors.Is(phaseErr, errLost) {
		flags &^= isComplete
	}
	flags, err = m.liveComm.Agree(ctx, flags)
	hasDeaths := errors.Is(err, mpi.ErrProcFailed)
	switch {
	case err != nil && !hasDeaths:
		return false, false, err
	case flags&isComplete == 0:
		return false, false, errLost
	}
	isSaved = flags&isDone != 0
	return isSaved, isSaved && !hasDeaths, nil
}

// shrink continues without the dead ranks.
func (m *member) shrink(ctx context.Context) error {
	comm, err := m.liveComm.Shrink(ctx)
	if err != nil {
		return err
	}
	if comm.Rank() == 0 {
		dead := m.liveComm.Group().Difference(comm.Group()).Members()
		slices.SortFunc(dead, func(a, b mpi.Proc) int { return int(a.Rank) - int(b.Rank) })
		fmt.Printf("%d of %d ranks continue after step %d; failed: %s\n", comm.Size(), m.liveComm.Size(), m.savedState.atStep, ranksOf(dead))
	}
	m.close()
	m.liveComm, m.mustRestore = comm, true
	return nil
}

// ranksOf lists the ranks of processes in the job.
func ranksOf(processes []mpi.Proc) string {
	text := ""
	for i, p := range processes {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprint(p.Rank)
	}
	return text
}

// report prints the success of the computation.
func (m *member) report() error {
	if m.liveComm.Rank() != 0 {
		return nil
	}
	_, err := fmt.Fprintf(os.Stdout, "ok: %d steps on %d ranks, %d at the end; the result is that of an uninterrupted run\n", m.stepCount, m.worldComm.Size(), m.liveComm.Size())
	return err
}
