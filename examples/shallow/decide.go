package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

// An action is the next phase of all members.
type action int

const (
	doSteps     action = iota // Compute the steps to the next checkpoint.
	doIntegrate               // Store the rows of leaving members elsewhere, and integrate a change.
	doEnd                     // Compute the result.
)

// A plan is rank 0's, for all members.
type plan struct {
	Action action
	// Of the change.
	DeltaPset, MainPset string
	// Whether each rank of the communicator is in MainPset.
	StaysByRank []bool
	// Processes join, and fewer than two members stay.
	IsPublished bool
}

// attempts is the number of consecutive replacements that may fail before dead processes are removed without
// replacement.
const attempts = 3

// replacement is the state of requests that replace dead members.
type replacement struct {
	// Nil if none is in progress.
	request *mpi.Future[[]string]
	// Has the dead members.
	failedPset string
	// Consecutive changes and requests without success.
	undoneCount int
	// isImpossible is set if the job may not have more processes.
	isImpossible bool
}

// decide returns the plan of rank 0 in all members.
func (m *member) decide(ctx context.Context) (p plan, err error) {
	m.disturbAt(ctx, pointDecide)
	var text []byte
	if m.comm.Rank() == 0 {
		if p, err = m.nextPlan(ctx); err != nil {
			return p, err
		}
		if text, err = json.Marshal(p); err != nil {
			return p, err
		}
	}
	size := []int{len(text)}
	if err := mpi.Bcast(ctx, m.comm, size, 0); err != nil {
		return p, err
	}
	if m.comm.Rank() != 0 {
		text = make([]byte, size[0])
	}
	if err := mpi.Bcast(ctx, m.comm, text, 0); err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// nextPlan makes the plan of rank 0. Changes arrive in the same way, no matter which process or user requests
// them.
func (m *member) nextPlan(ctx context.Context) (plan, error) {
	m.announce()
	m.deleteOldSets(ctx)
	work := plan{Action: doSteps}
	isOver := m.savedState.atStep == m.stepCount
	if isOver {
		work.Action = doEnd
	}
	if err := m.awaitReplacement(ctx, isOver); err != nil {
		return work, err
	}
	change, ok, err := m.session.ResourceChange(ctx, m.mainPset)
	switch {
	case errors.Is(err, mpi.ErrUnsupported) || errors.Is(err, mpi.ErrProcFailed):
		return work, nil // There are no process sets, or their holder has died (docs/elastic.md). The live members continue.
	case err != nil || !ok:
		return work, err
	case change.Type == mpi.ChangeFailed:
		return plan{Action: doSteps}, m.replace(ctx, change.Delta, isOver)
	case change.Main == "": // It is for another part of the job.
		return work, nil
	}
	return m.planChange(ctx, change, work)
}

// announce prints the number of ranks after each change of the communicator.
func (m *member) announce() {
	if m.announcedComm != m.comm {
		fmt.Fprintf(m.output, "step %d: %d ranks\n", m.savedState.atStep, m.comm.Size())
	}
	m.announcedComm = m.comm
}

// planChange returns the plan for a change of the main set, or work if the change has been undone.
func (m *member) planChange(ctx context.Context, change mpi.Change, work plan) (plan, error) {
	main, err := m.session.Group(ctx, change.Main)
	if errors.Is(err, mpi.ErrPset) {
		return work, nil
	}
	if err != nil {
		return work, err
	}
	p := plan{Action: doIntegrate, DeltaPset: change.Delta, MainPset: change.Main}
	ranks := make([]int, m.comm.Size())
	for rank := range ranks {
		ranks[rank] = rank
	}
	ranks, err = m.comm.Group().Translate(ranks, main)
	staying := 0
	for _, rank := range ranks {
		isMember := rank != mpi.Undefined
		if p.StaysByRank = append(p.StaysByRank, isMember); isMember {
			staying++
		}
	}
	p.IsPublished = staying < 2 && main.Size() > staying
	return p, err
}

// replace requests the replacement of the dead members, while the others compute. At the end, and where the job may have no more
// processes, it requests their removal only.
func (m *member) replace(ctx context.Context, failed string, isOver bool) error {
	r := &m.replacement
	if r.request != nil {
		return nil
	}
	r.failedPset = failed
	op, args := mpi.PsetShrink, mpi.PsetArgs{}
	if !isOver && !r.isImpossible && r.undoneCount < attempts {
		dead, err := m.session.PsetInfo(ctx, failed)
		if err != nil {
			return err
		}
		op, args = mpi.PsetReplace, mpi.PsetArgs{Add: dead.Size, Sub: dead.Size, Partial: true}
	}
	r.request = m.session.PsetOpAsync(op, []string{m.mainPset}, args)
	return m.awaitReplacement(ctx, isOver)
}

// awaitReplacement completes a request of replace, and waits for it if the computation is over. The change itself is in the
// results of ResourceChange.
func (m *member) awaitReplacement(ctx context.Context, isOver bool) error {
	r := &m.replacement
	if r.request == nil {
		return nil
	}
	select {
	case <-r.request.Done():
	default:
		if !isOver {
			return nil
		}
	}
	_, err := r.request.Wait(ctx)
	r.request = nil
	switch {
	case errors.Is(err, mpi.ErrPending): // A user's change is in progress.
		return nil
	case errors.Is(err, mpi.ErrUnsupported):
		r.isImpossible = true
		return nil
	case isUndone(err):
		r.undoneCount++
		return nil
	}
	return err
}

// deleteOldSets deletes the sets of earlier changes. All members use the current one.
func (m *member) deleteOldSets(ctx context.Context) {
	for _, name := range m.oldSets {
		_ = m.session.DeletePset(ctx, name) // ErrPset for mpi://WORLD, for sets of others, and without a name.
	}
	m.oldSets = nil
}
