package mpi

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/internal/text"
	"github.com/ferrympi/ferry/pml"
)

// activation is one use of the ranks of a thread communicator, by one Run or by the Starts up to the last Finish. In this process it ends when all
// local ranks have finished.
type activation struct {
	threadComm *ThreadComm
	// Of the communicator of all ranks.
	firstCommID cid.Extended
	// Names no communicator. Its CommBroken event ends the activation.
	failureID  cid.Extended
	allMembers memberList
	// The ranks of this process, by endpoint.
	threadRanks []threadRank
	// Closed at the end.
	ended chan struct{}
	// Its ranks are those of a Run. Set before any is used.
	isRun bool

	// Guarded by threadComm.mu.
	startedCount, finishedCount int

	// Closed when a failure has reached all ranks here.
	allAbandoned chan struct{}

	mu sync.Mutex
	// Why it has failed, for operations of other ranks.
	failureErr error
	cancelRun  context.CancelCauseFunc
	runErr     error // Of Run.
	// Of an f, or nil.
	firstPanic    any
	refusalBySpan map[cid.Span]error
	tablesByID    map[cid.Extended]*table
	constructs    map[constructKey]*sharedConstruct
	openings      run.Openings
}

// idsPerActivation is the number of ids that an activation derives, which are firstCommID and failureID.
const idsPerActivation = 2

// threadRank is one goroutine rank of an activation. Operations in its communicators have the engine of rankState.
type threadRank struct {
	activation *activation
	rankState  *rankState
	endpoint   uint16
	rank       int

	// Guarded by threadComm.mu.
	isFinishing bool // Finish has begun.
	// It is counted in activation.finishedCount.
	isFinished bool

	mu sync.Mutex
	// The one of all ranks. Set once.
	firstComm *Comm
	openComms map[*Comm]struct{}
	// The rank ends, and gets no further communicators.
	hasEnded bool
}

// activate begins an activation. t.mu held.
func (t *ThreadComm) activate(ctx context.Context) (*activation, error) {
	if err := t.refill(ctx); err != nil {
		return nil, err
	}
	ids, err := t.idDeriver.Next(idsPerActivation)
	if err != nil {
		return nil, err
	}
	a := &activation{
		threadComm: t, firstCommID: ids[0], failureID: ids[1], ended: make(chan struct{}), allAbandoned: make(chan struct{}), threadRanks: make([]threadRank, len(t.rankStates)),
		refusalBySpan: map[cid.Span]error{}, tablesByID: map[cid.Extended]*table{}, constructs: map[constructKey]*sharedConstruct{},
	}
	var group memberBuilder
	for i, p := range t.parentGroup.members.all() {
		for endpoint := range t.goroutineCounts[i] {
			group.add(member{Proc: p.Proc, endpoint: uint16(endpoint), activation: a})
		}
	}
	a.allMembers = group.list()
	for i := range a.threadRanks {
		s := &a.threadRanks[i]
		s.activation, s.rankState, s.endpoint, s.rank, s.openComms = a, &t.rankStates[i], uint16(i), t.firstRank+i, map[*Comm]struct{}{}
	}
	t.currentActivation = a
	e := t.session.process
	e.mu.Lock()
	e.activationsByFailureID[a.failureID] = a
	before, failed := e.earlyEvents.eventsByID[a.failureID]
	e.mu.Unlock()
	if failed {
		a.failedElsewhere(before.Proc, before.Reason)
	}
	return a, nil
}

// end ends an activation after all local ranks have finished. t.mu is held.
func (a *activation) end() {
	t := a.threadComm
	e := t.session.process
	e.mu.Lock()
	delete(e.activationsByFailureID, a.failureID)
	e.earlyRevocations.dropSpan(cid.Descendants(a.firstCommID))
	e.mu.Unlock()
	t.currentActivation = nil
	close(a.ended)
}

func (a *activation) setCancel(cancel context.CancelCauseFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancelRun = cancel; a.failureErr != nil {
		cancel(a.failureErr)
	}
}

// open creates a rank's handle of the communicator of all ranks.
func (a *activation) open(s *threadRank) (*Comm, error) {
	t := a.threadComm
	g := &Group{session: t.session.user(), self: a.allMembers.at(s.rank), members: a.allMembers, rank: s.rank}
	c, err := newComm(t.session, s, g, t.module, pml.CommSpec{ID: a.firstCommID, Members: t.activationMembers, Rank: s.rank}, t.paramValues)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firstComm = c
	return c, nil
}

// run is a rank of Run.
func (a *activation) run(ctx context.Context, s *threadRank, f func(context.Context, *Comm) error) {
	defer func() { a.closeAll(s, s.end()) }() // Also after runtime.Goexit.
	a.protect(s, "f", func() {
		c, err := a.open(s)
		if err == nil {
			err = f(ctx, c)
		}
		if err != nil {
			a.keep(err, nil)
			a.failed(s.rank, err)
		} else if err = s.idle(); err != nil {
			a.keep(fmt.Errorf("run: rank %d: %w", s.rank, err), nil)
		}
	})
}

// protect calls a function of the program for a rank. Its panic, or runtime.Goexit, is a failure of
// the rank.
func (a *activation) protect(s *threadRank, name string, call func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		err := fmt.Errorf("%s has called runtime.Goexit", name)
		if v != nil {
			err = fmt.Errorf("%s has panicked: %v", name, v)
			a.threadComm.session.process.Env().Logger.Error("a goroutine rank has panicked", "goroutine_rank", s.rank, "value", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
		a.keep(err, v)
		a.failed(s.rank, err)
	}()
	call()
	returned = true
}

// closeAll closes communicators that a rank of Run has left open, each of them also when a hook of an
// attribute of another one ends the goroutine.
func (a *activation) closeAll(s *threadRank, comms []*Comm) {
	if last := len(comms) - 1; last >= 0 {
		defer a.closeAll(s, comms[:last])
		a.protect(s, "a hook of an attribute", func() { _ = comms[last].Close() }) // Unless it is closed, and completes collectives.
	}
}

// keep stores the first error and the first panic of the ranks here.
func (a *activation) keep(err error, panicked any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runErr == nil {
		a.runErr = err
	}
	if a.firstPanic == nil {
		a.firstPanic = panicked
	}
}

// outcome returns the result of Run, or panics.
func (a *activation) outcome() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.firstPanic != nil {
		panic(a.firstPanic)
	}
	return a.runErr
}

// failed ends the activation in all processes because a rank of this one has failed.
func (a *activation) failed(rank int, cause error) {
	err := fmt.Errorf("rank %d of the thread communicator has failed: %w", rank, cause)
	if a.fail(fmt.Errorf("%w: %w", ErrBroken, err)) {
		a.threadComm.session.process.ReportBroken(a.failureID, a.threadComm.parentGroup.processes(), err)
	}
}

// failedElsewhere ends the activation in this process.
func (a *activation) failedElsewhere(by Proc, reason string) {
	a.fail(fmt.Errorf("%w: process %d of %s: %s", ErrBroken, by.Rank, by.Namespace, reason))
}

// fail ends everything that waits in the activation's communicators here, now and later, and reports whether
// it was the first to do so.
func (a *activation) fail(err error) bool {
	a.mu.Lock()
	first, cancel := a.failureErr == nil, a.cancelRun
	if first {
		a.failureErr = err
	}
	a.mu.Unlock()
	if !first {
		return false
	}
	if cancel != nil {
		cancel(err)
	}
	for i := range a.threadRanks {
		for _, c := range a.threadRanks[i].open() {
			c.abandon(err)
		}
	}
	close(a.allAbandoned)
	return true
}

// awaitAbandoned waits, if the activation has failed, until all its communicators here are abandoned. A rank that
// closes one before would have others report a closed communicator in place of the failure.
func (a *activation) awaitAbandoned() {
	a.mu.Lock()
	failed := a.failureErr != nil
	a.mu.Unlock()
	if failed {
		<-a.allAbandoned
	}
}

// abandon ends everything that waits in a communicator, now and later. err wraps ErrBroken.
func (c *Comm) abandon(err error) {
	for plane := range pml.Plane(pml.Planes) {
		c.pml.Abort(plane, err)
	}
	c.collective.Abort(err)
	_ = c.collective.Fail(err)
}

// startedRanks describes the ranks that have started and not finished. threadComm.mu held.
func (a *activation) startedRanks() string {
	var ranks []int
	for i := range a.threadRanks[:a.startedCount] {
		if !a.threadRanks[i].isFinished {
			ranks = append(ranks, a.threadRanks[i].rank)
		}
	}
	return text.Ranks(ranks)
}

// add counts a communicator of the rank. It returns ErrClosed if the rank has ended, because an Idup may complete later.
func (s *threadRank) add(c *Comm) error {
	s.mu.Lock()
	hasEnded := s.hasEnded
	if !hasEnded {
		s.openComms[c] = struct{}{}
	}
	s.mu.Unlock()
	if hasEnded {
		return fmt.Errorf("%w: rank %d of the thread communicator has ended", ErrClosed, s.rank)
	}
	if err := s.activation.refusal(c.spec.ID); err != nil {
		c.abandon(err)
	}
	return nil
}

// end prevents further communicators of the rank, and returns the open ones.
func (s *threadRank) end() []*Comm {
	s.mu.Lock()
	s.hasEnded = true
	s.mu.Unlock()
	return s.open()
}

func (s *threadRank) remove(c *Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.openComms, c)
}

// open returns the rank's open communicators.
func (s *threadRank) open() (all []*Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.openComms {
		all = append(all, c)
	}
	return all
}

// idle returns ErrPending if the rank has more open than its first communicator, or collectives in progress.
func (s *threadRank) idle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy()
}

// endIdle is end, unless idle returns an error.
func (s *threadRank) endIdle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.busy()
	if err == nil {
		s.hasEnded = true
	}
	return err
}

// busy is idle with s.mu held.
func (s *threadRank) busy() error {
	var busy []string
	for c := range s.openComms {
		if c != s.firstComm && !c.isClosed() {
			busy = append(busy, c.describe())
		} else if !c.collective.IsIdle() {
			busy = append(busy, "collectives of communicator "+c.label())
		} else if c.partitions.isBusy(c) {
			busy = append(busy, "partitioned operations of communicator "+c.label())
		}
	}
	if busy == nil {
		return nil
	}
	slices.Sort(busy)
	const most = 4 // Listed communicators.
	if more := len(busy) - most; more > 0 {
		busy = append(busy[:most], fmt.Sprintf("%d others", more))
	}
	return fmt.Errorf("%w: rank %d: first close, free or complete: %s", ErrPending, s.rank, strings.Join(busy, ", "))
}

// describe returns the name of a communicator in errors about open communicators.
func (c *Comm) describe() string {
	c.mu.Lock()
	usedBy := c.usedBy
	c.mu.Unlock()
	return cmp.Or(usedBy, "communicator "+c.label())
}

// label returns the name of a communicator, or its id if it has no name.
func (c *Comm) label() string {
	if name := c.Name(); name != "" {
		return fmt.Sprintf("%q", name)
	}
	return c.spec.ID.String()
}
