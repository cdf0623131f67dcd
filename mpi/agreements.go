package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/agreement"
	"github.com/ferrympi/ferry/framework"
)

// agreements is a rank's part in the agreements of a communicator (Agree, Shrink). The first call or
// note makes it. Package agreement has the protocol.
type agreements struct {
	c          *Comm
	callWakeup chan struct{}
	// Flags of this rank, and their AND, in the common case.
	reductionFlags [2]uint64

	mu      sync.Mutex
	machine *agreement.Machine
	// Of the call in progress, or 0.
	callOperation agreement.Operation
	// The end of the call for hooks, or nil.
	endHook func(error)
	stage   stage
	// Why the call in progress cannot be decided.
	callErr  error
	isClosed bool
	// See agreementCall. Of the current instance.
	confirmedOutcome *agreement.Outcome
	// Calls that start after the abandoned one. Their contexts have ended.
	lateCalls []agreement.Call

	timer *time.Timer
	// 0 while the timer does not run.
	timerPeriod time.Duration
	// repeatPeriod, and more in tests.
	longestPeriod time.Duration
	// Since the current instance was called.
	callTicks int
}

// stage is the progress of the current instance at this rank.
type stage uint8

const (
	stageNone      stage = iota
	stageCommon          // In the collectives of the common case.
	stageRequested       // Likewise. They are aborted because of a note.
	stageAwaited         // In the protocol. A call waits for the outcome.
	stageAbandoned       // In the protocol. The context of the call has ended.
)

// Periods of ticks. A message without an answer is repeated after repeatPeriod. In the common case, the first period is
// probePeriod, and each of the next ones is twice the one before, up to repeatPeriod.
const (
	repeatPeriod = time.Second
	probePeriod  = 10 * time.Millisecond
)

// agreement returns the communicator's part in agreements.
func (c *Comm) agreement() *agreements {
	if a := c.agreements.Load(); a != nil {
		return a
	}
	a := &agreements{c: c, callWakeup: make(chan struct{}, 1), longestPeriod: repeatPeriod, machine: agreement.New(c.rank, c.size)}
	a.mu.Lock() // Until the members' states are known.
	defer a.mu.Unlock()
	if !c.agreements.CompareAndSwap(nil, a) {
		return c.agreements.Load()
	}
	failed, _ := c.failed() // Later failures find a.
	a.machine.Failed(failed...)
	for _, incarnation := range c.session.process.Left() {
		for _, rank := range c.ranksOfProcess(incarnation) {
			a.machine.Left(rank)
		}
	}
	if c.isClosed() {
		a.close()
	}
	return a
}

// begin begins a call, which has a name in hooks. end follows, unless begin returns an error.
func (a *agreements) begin(ctx context.Context, op agreement.Operation, name string) error {
	c := a.c
	switch state := c.stateBits.Load(); {
	case state&stateClosed != 0:
		return c.errClosed()
	case state&stateIsolated != 0:
		return c.terminalError()
	}
	if c.hasOtherProcesses() {
		if err := c.session.process.CheckNotes(); err != nil {
			return err
		}
	}
	if err := c.terminalError(); err != nil { // The members may wait for this rank in a communicator that it does not create.
		c.collective.LeaveUnassigned(err)
	}
	a.mu.Lock()
	if a.callOperation != 0 {
		defer a.mu.Unlock()
		return fmt.Errorf("%w: another goroutine of rank %d is in %v of this communicator", ErrPending, c.rank, a.callOperation)
	}
	a.callOperation, a.callErr = op, nil
	seq := uint32(a.machine.Instance())
	a.mu.Unlock()
	if endHook := c.watch(ctx, name, 0, seq, false); endHook != nil {
		a.mu.Lock()
		a.endHook = endHook
		a.mu.Unlock()
	}
	return nil
}

// end ends a call with its error.
func (a *agreements) end(err error) {
	a.mu.Lock()
	op, endHook := a.callOperation, a.endHook
	a.callOperation, a.endHook = 0, nil
	a.mu.Unlock()
	a.logError(op, err)
	if endHook != nil {
		endHook(err)
	}
}

// hasOtherProcesses reports whether a member is in another process.
func (c *Comm) hasOtherProcesses() bool {
	if c.threadRank == nil {
		return c.size > 1
	}
	return c.division().Count() > 1
}

// call returns a call of the protocol with the known failures.
func (a *agreements) call(op agreement.Operation) agreement.Call {
	f := &a.c.failures
	f.Lock()
	defer f.Unlock()
	failed, _ := a.c.failed()
	call := agreement.Call{Operation: op, FailedRanks: failed}
	if len(failed) > 0 {
		call.AckedRanks = slices.Sorted(slices.Values(failed[:f.ackedCount]))
		slices.Sort(call.FailedRanks)
	}
	return call
}

// agreementCall is a call of the protocol.
type agreementCall struct {
	agreement.Call
	// See agreement.Machine's Start.
	value *uint64
	// The outcome that a second instance of Shrink confirms, or nil.
	confirmedOutcome *agreement.Outcome
}

// run takes part in an instance by the protocol, and returns its outcome. If ctx ends first, this rank continues in the instance
// without the call. In Shrink it is excluded then, unless it holds a proposal, which is waited for.
func (a *agreements) run(ctx context.Context, call agreementCall) (agreement.Outcome, error) {
	ctx = background(ctx)
	done := ctx.Done()
	if err := a.start(ctx, call); err != nil {
		return agreement.Outcome{}, err
	}
	for {
		if o, isDecided, err := a.result(); isDecided {
			if err == nil {
				a.logOutcome(&o)
			}
			return o, err
		}
		select {
		case <-a.callWakeup:
		case <-done:
			if done = nil; a.abandon(call.Operation) {
				return agreement.Outcome{}, context.Cause(ctx)
			}
		}
	}
}

// start passes a call to the machine. It waits for the end of an abandoned call before. If ctx ends first, the call starts later,
// without its caller.
func (a *agreements) start(ctx context.Context, call agreementCall) error {
	for {
		var err error
		a.input(func(m *agreement.Machine) {
			if err = a.callErr; err != nil {
				return
			}
			if err = m.Start(call.Call, call.value); err == nil {
				a.confirmedOutcome, a.stage, a.callTicks = call.confirmedOutcome, stageAwaited, 0
				a.startTicking()
			}
		})
		if !errors.Is(err, ErrPending) {
			return err
		}
		select {
		case <-a.callWakeup:
		case <-ctx.Done():
			if a.startLater(call.Call) {
				return context.Cause(ctx)
			}
		}
	}
}

// result returns the outcome of the waiting call once it is decided, or the error that ends the wait.
func (a *agreements) result() (o agreement.Outcome, isDecided bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, isDecided = a.machine.Result()
	switch {
	case isDecided:
		a.stage = stageNone
	case a.isClosed:
		return o, true, a.c.errClosed()
	case a.callErr != nil:
		a.stage = stageAbandoned
		return o, true, a.callErr
	}
	return o, isDecided, nil
}

// input passes an input to the machine, and sends its messages.
func (a *agreements) input(f func(m *agreement.Machine)) { a.c.session.process.sendNotes(a.process(f)) }

// process passes an input to the machine, and returns the notes to send. No lock is held.
func (a *agreements) process(f func(m *agreement.Machine)) []outgoingNote {
	a.mu.Lock()
	f(a.machine)
	refused := a.followAbandoned()
	isInterrupted := a.stage == stageCommon && a.machine.Requested()
	if isInterrupted {
		a.stage = stageRequested
	}
	notes := a.takeNotes()
	if !a.machine.IsPending() {
		a.wake()
	}
	a.mu.Unlock()
	if isInterrupted {
		a.interrupt(errRequested)
	}
	for _, o := range refused {
		a.c.refuseShrunk(o)
	}
	return notes
}

// interrupt ends the collectives of the common case. No lock is held.
func (a *agreements) interrupt(why error) {
	a.c.collective.Abort(why)
	a.c.collective.EndCreations(why) // The ranks of this process may wait for one another in an opening.
}

// wake makes the waiting call read the machine again.
func (a *agreements) wake() {
	select {
	case a.callWakeup <- struct{}{}:
	default:
	}
}

// errRequested ends the collectives of the common case.
var errRequested = errors.New("a member of Agree has continued without collectives")

// takeNotes takes the messages of the machine. mu held.
func (a *agreements) takeNotes() (notes []outgoingNote) {
	c := a.c
	for _, m := range a.machine.Take() {
		to := c.spec.Members.Member(m.ToRank)
		h := noteHeader{
			comm: c.spec.ID, to: noteEnd{uint32(m.ToRank), to.Endpoint},
			from: noteEnd{uint32(c.rank), c.spec.Members.Member(c.rank).Endpoint},
		}
		notes = append(notes, outgoingNote{a, to.Incarnation, h.encode(m.Message)})
	}
	return notes
}

// receive processes a message of a member.
func (a *agreements) receive(from int, msg agreement.Message) []outgoingNote {
	return a.process(func(m *agreement.Machine) {
		if !m.IsAlive(from) {
			a.c.session.process.notesDropped.Add(1)
		}
		m.Receive(from, msg)
	})
}

// fail ends the call in progress.
func (a *agreements) fail(err error) {
	a.mu.Lock()
	if a.callErr == nil {
		a.callErr = err
	}
	isCommon := a.stage == stageCommon
	if isCommon {
		a.stage = stageRequested
	}
	a.wake()
	a.mu.Unlock()
	if isCommon {
		a.interrupt(err)
	}
}

// failAgreements ends the call in progress in a process that is isolated.
func (c *Comm) failAgreements(err error) {
	if a := c.agreements.Load(); a != nil {
		a.fail(err)
	}
}

// membersFailed reports the failures of ranks to the machine, if there is one.
func (c *Comm) membersFailed(ranks []int) {
	if a := c.agreements.Load(); a != nil {
		a.input(func(m *agreement.Machine) { m.Failed(ranks...) })
	}
}

// membersEnded reports to the machine, if there is one, the ranks of a process that has left, or ends the call in
// progress if this process is isolated.
func (c *Comm) membersEnded(ranks []int, state framework.PeerState) {
	a := c.agreements.Load()
	if a == nil || len(ranks) == 0 {
		return
	}
	if state == framework.Left {
		a.input(func(m *agreement.Machine) {
			for _, rank := range ranks {
				m.Left(rank)
			}
		})
	} else if err := c.session.process.CheckNotes(); err != nil {
		c.failAgreements(err)
	}
}

// closeAgreements ends the part of a communicator that is closed. Members that wait for this rank get Closed.
func (c *Comm) closeAgreements() {
	if a := c.agreements.Load(); a != nil {
		a.input(func(*agreement.Machine) { a.close() })
	}
}

// close is closeAgreements with mu held.
func (a *agreements) close() {
	a.isClosed = true
	a.lateCalls = nil
	a.machine.Close()
	if a.timer != nil {
		a.timer.Stop()
	}
}

// startTicking starts calls of tick, once in each period while an instance waits for others. mu held.
func (a *agreements) startTicking() {
	period := a.longestPeriod
	if a.stage == stageCommon {
		period = min(probePeriod<<min(a.callTicks, 10), period)
	}
	switch {
	case a.isClosed || a.timerPeriod != 0 && a.timerPeriod <= period:
		return
	case a.timer == nil:
		asyncs := &a.c.session.asyncs // The session may close during a tick.
		a.timer = time.AfterFunc(period, func() { asyncs.run(func(context.Context) { a.tick() }) })
	default:
		a.timer.Reset(period)
	}
	a.timerPeriod = period
}

// tick repeats messages without an answer. In the common case it probes the members for one that has closed the communicator,
// one at a time.
func (a *agreements) tick() {
	a.input(func(m *agreement.Machine) {
		a.timerPeriod = 0
		isCommon := a.stage == stageCommon
		if a.isClosed || !isCommon && !m.IsPending() {
			return
		}
		a.callTicks++
		a.startTicking()
		switch {
		case a.callTicks == 1: // The instance is younger than a period.
		case !isCommon:
			m.Tick()
		default:
			if rank := (a.c.rank + a.callTicks - 1) % a.c.size; rank != a.c.rank {
				m.Probe(rank)
			}
		}
	})
}
