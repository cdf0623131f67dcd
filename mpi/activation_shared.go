package mpi

import (
	"context"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// The local ranks of an activation share all state that is equal for them.

// table is the members of a communicator of goroutine ranks, with derived data. All local handles of the communicator and of its duplicates share
// one.
type table struct {
	pml.Members
	// The same members. It is empty if the activation has them.
	groupMembers memberList
	// Ranks of this process that have not asked for the table. Guarded by activation.mu.
	awaitedRanks int

	mu sync.Mutex
	// nil before the first use.
	division *run.Division
	// nil before the first collective operation.
	shape *run.Shape
}

// shareTable returns the table of a new communicator. The first local rank creates it.
func (a *activation) shareTable(id cid.Extended, create func() *table) *table {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.tablesByID[id]
	if x == nil {
		x = create()
		self := a.threadComm.session.process.Env().Self
		for rank := range x.Len() {
			if x.Member(rank).Incarnation == self {
				x.awaitedRanks++
			}
		}
		a.tablesByID[id] = x
	}
	if x.awaitedRanks--; x.awaitedRanks == 0 {
		delete(a.tablesByID, id)
	}
	return x
}

// shapeData returns the shape data of communicators with these members. The first call obtains it by find.
func (t *table) shapeData(find func() (*run.Shape, error)) (*run.Shape, error) {
	t.mu.Lock()
	known := t.shape
	t.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := find() // Equal if several ranks find it at the same time.
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shape = found
	return found, nil
}

// divided returns the division of the members among processes.
func (t *table) divided(self framework.Incarnation) *run.Division {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.division == nil {
		t.division = run.Divide(t, self)
	}
	return t.division
}

// sharedConstruct is a group construct that the ranks here enter together.
type sharedConstruct struct {
	// Its context is that of the construct.
	callingRank int
	// Closed at its end.
	done   chan struct{}
	baseID uint64
	err    error
	// Ranks of this process that have not asked for it.
	awaitedRanks int
}

// constructKey identifies a construct by its parent communicator and the number of constructs before it. A rank may enter one before another rank has
// entered the previous one.
type constructKey struct {
	cid.Extended
	earlierConstructs int
}

// constructOnce calls draw once for all of the given ranks of this process, and returns its result in
// each of them.
func (a *activation) constructOnce(ctx context.Context, key constructKey, rank int, ranks []int, draw func() (uint64, error)) (uint64, error) {
	a.mu.Lock()
	x := a.constructs[key]
	first := x == nil
	if first {
		x = &sharedConstruct{callingRank: rank, done: make(chan struct{}), awaitedRanks: len(ranks)}
		a.constructs[key] = x
	}
	if x.awaitedRanks--; x.awaitedRanks == 0 {
		delete(a.constructs, key)
	}
	a.mu.Unlock()
	if first {
		x.baseID, x.err = draw()
		close(x.done)
	}
	select {
	case <-x.done:
		if x.err != nil && !first { // It may be the end of the context of that rank.
			return 0, fmt.Errorf("%w: rank %d: %v", ErrBroken, x.callingRank, x.err)
		}
		return x.baseID, x.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// refuse announces that a rank is not in the communicators of the span. These communicators end in all local ranks, because members would wait for
// the rank without end.
func (s *threadRank) refuse(span cid.Span, why error) {
	a := s.activation
	a.mu.Lock()
	_, known := a.refusalBySpan[span]
	isEnded := a.failureErr != nil
	err := fmt.Errorf("%w: rank %d has not created the communicator: %w", ErrBroken, s.rank, why)
	if !known && !isEnded {
		a.refusalBySpan[span] = err
	}
	a.mu.Unlock()
	if isEnded { // All processes are notified of the end of the activation.
		return
	}
	if len(a.threadComm.goroutineCounts) > 1 {
		a.threadComm.module.Refuse(span, int(s.endpoint))
	}
	if known {
		return
	}
	for i := range a.threadRanks {
		for _, c := range a.threadRanks[i].open() {
			if span.Has(c.spec.ID) {
				c.abandon(err)
			}
		}
	}
}

// refusal returns why a communicator has ended before this rank has created it, or nil.
func (a *activation) refusal(id cid.Extended) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failureErr != nil {
		return a.failureErr
	}
	for span, err := range a.refusalBySpan {
		if span.Has(id) {
			return err
		}
	}
	return nil
}
