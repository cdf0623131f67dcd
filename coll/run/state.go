package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// State is the state of a communicator's collective operations in one rank. One operation at a time
// is in progress on a caller's goroutine. Creations of duplicates (BeginDup) may overlap with it,
// and use separate fields.
type State struct {
	env Env
	// States of Acquire, and busyEarly.
	busyState uint32
	// Continues an Early in the engine, or nil.
	promoteEarly func()
	// Failure that prevents further operations.
	brokenErr atomic.Pointer[error]
	// Creations of duplicates in progress.
	pendingDups   atomic.Int32
	creationWaits creationWaits

	// Error of all waits, now and later. Guarded by the engine's lock.
	abortErr error
	// Ranks that have left or failed. Guarded by the engine's lock.
	lostRanks map[int]error

	// Ids of new communicators. Guarded by busyState, and by a pending duplicate while there is one.
	Children cid.Deriver
	// Ids that were unused at the beginning of the operation. Guarded by busyState.
	unusedIDs cid.Span
	// unusedIDs was refused, see leave.
	hasLeft atomic.Bool
	// Number of operations, see nextTag. Guarded by busyState.
	operationCount uint32

	// nil before the first operation that exchanges messages, which sets hasResources. Guarded by busyState.
	*resources
	hasResources atomic.Bool
}

// resources has what the operations of a communicator need. Most duplicates never need it. Guarded
// by State.busyState.
type resources struct {
	peers       peers
	nonblocking nonblocking
	// Algorithms without an instance, or with one that is open.
	usableTable *coll.Table
	force       *coll.Force
	// Algorithms without an instance.
	plainTable *coll.Table
	nodes      coll.Placement
	// Ranks compare their calls, see check.go.
	comparesCalls bool
	offers        []coll.ComponentOffer
	// Some offers need an instance that is not open.
	hasUnopened bool
	instances   []openInstance
	vectors     coll.Vectors
	// Memory of vectors.
	vectorMemory    [4][]int
	cachedSchedules [maxSchedules]cachedSchedule
	// Number of replaced schedules.
	replacedSchedules uint
}

// Init prepares the state.
func (k *State) Init(env Env) {
	k.Children = cid.NewDeriver(env.ID)
	k.env = env
}

// ErrPanicked is the reason of an operation that has not returned.
var ErrPanicked = errors.New("an operation or hook of the program panicked in it")

// Do carries out one collective call f on bytes bytes. After an error or a panic, ranks may have
// different views of the completion, so that later operations fail. A panic continues in the caller,
// since f calls functions of the program. framework.ErrNoComm and calls that do not match
// (MismatchError) are results that all ranks agree on, and no failure.
func (k *State) Do(ctx context.Context, op string, bytes int, f func() error) (err error) {
	if err := k.Enter(ctx); err != nil {
		return err
	}
	var end func(error)
	panicked := true
	defer func() {
		if panicked {
			err = fmt.Errorf("%s: %w", op, ErrPanicked)
			k.Fail(err)
			unassigned, cause := k.unusedIDs, err // A closure over err moves the result of each call to the heap.
			// The panic may have come under the engine's lock, for which leave waits.
			k.env.Host.Spawn(func(context.Context) { k.leave(unassigned, cause) })
		}
		k.Exit()
		if end != nil {
			end(err)
		}
	}()
	if k.env.HasHooks {
		end = k.env.Host.Watch(ctx, op, bytes, k.operationCount, false)
	}
	err = f()
	if _, agreed := errors.AsType[*MismatchError](err); err != nil && !errors.Is(err, framework.ErrNoComm) && !agreed {
		err = k.FailEntered(k.env.Host.EndError(ctx, op, err))
	}
	panicked = false
	return err
}

// Enter begins an operation, which Exit ends, unless it returns an error. Do calls both.
func (k *State) Enter(ctx context.Context) error {
	if k.env.CommState.Load() != 0 {
		return k.env.Host.CallError()
	}
	if !k.Acquire() {
		return fmt.Errorf("%w: another goroutine is in a collective operation of this communicator; use one communicator for each (Dup)", framework.ErrPending)
	}
	err := k.CheckUsable()
	if k.unusedIDs = (cid.Span{}); k.pendingDups.Load() == 0 { // Otherwise a duplicate may still use them.
		k.unusedIDs = k.Children.UnassignedIDs()
	}
	if err != nil && !k.hasLeft.Load() { // Others may have created communicators that this rank will not create.
		k.leave(k.unusedIDs, err)
	}
	if err == nil && hasEnded(ctx) {
		err = k.FailEntered(k.env.Host.EndError(ctx, "collective", context.Cause(ctx)))
	}
	if err != nil {
		k.Release()
	}
	return err
}

// Exit ends the operation of Enter.
func (k *State) Exit() {
	k.Release()
	if k.env.CommState.Load() == 0 {
		return
	}
	if k.resources != nil && len(k.instances) > 0 && k.env.Host.IsClosed() {
		k.CloseInstances()
	}
	if err := k.env.Host.TerminalError(); err != nil {
		k.LeaveUnassigned(err)
	}
}

// States of State.busyState.
const (
	// A goroutine is in a call.
	busyInCall = 1
	// An Early is between Start and Wait.
	busyEarly = 2
)

// Acquire acquires the communicator's operations for one goroutine. It returns false if another
// goroutine has them, or shortly after the Release on another processor.
func (k *State) Acquire() bool { return atomic.CompareAndSwapUint32(&k.busyState, 0, busyInCall) }

// Release reverses Acquire.
func (k *State) Release() { cpu.Store32(&k.busyState, 0) }

// CheckUsable returns ErrBroken if an earlier operation has failed, or Host.TerminalError.
func (k *State) CheckUsable() error {
	earlier := k.brokenErr.Load()
	if earlier == nil {
		return nil
	}
	switch why := k.env.Host.TerminalError(); {
	case why != nil:
		return why
	case errors.Is(*earlier, framework.ErrBroken): // In another rank.
		return *earlier
	default:
		return fmt.Errorf("%w: an earlier one failed: %w; "+Remedy, framework.ErrBroken, *earlier)
	}
}

// FailEntered is Fail in an operation that this rank has entered.
func (k *State) FailEntered(err error) error {
	k.Fail(err)
	k.leave(k.unusedIDs, err)
	return err
}

// leave ends the part of this rank in operations, because senders may wait for its receives. It
// refuses the ids in unassigned, because other ranks may have created communicators with these ids
// in the operation. Those ranks are notified. An example is Split, which may succeed in one rank and
// fail in another after the failure of a third.
func (k *State) leave(unassigned cid.Span, err error) {
	if unassigned != (cid.Span{}) {
		k.hasLeft.Store(true)
		k.env.Host.Refuse(unassigned, err)
	}
	k.Abort(err)
}

// Close ends waits without a visible result for the user, who closes the communicator. If another
// rank has broken the collectives, others may have created communicators that this one will not
// create.
func (k *State) Close() {
	if err := k.CheckUsable(); err != nil {
		k.LeaveUnassigned(err)
	}
	k.creationWaits.cancelReceives()
}

// LeaveUnassigned ends the part of this rank in operations if neither one of them nor a duplicate is
// in progress. Otherwise the end of that operation does, unless it has read the state of the
// communicator before the caller changed it. Agree, Shrink and Close therefore call LeaveUnassigned
// again.
func (k *State) LeaveUnassigned(err error) {
	if k.hasLeft.Load() || !k.Acquire() {
		return
	}
	if k.pendingDups.Load() == 0 {
		k.leave(k.Children.UnassignedIDs(), err)
	}
	k.Release()
}

// Remedy is the remedy in errors of broken collectives.
const Remedy = "Shrink returns a communicator whose collectives work"

// Fail makes all further operations of this rank fail, and notifies the other ranks, which would
// wait for it. Failures of processes and revocations are reported to them by other means. It
// returns err.
func (k *State) Fail(err error) error {
	isKnown := errors.Is(err, framework.ErrProcFailed) || errors.Is(err, framework.ErrBroken) || errors.Is(err, framework.ErrRevoked)
	if k.brokenErr.CompareAndSwap(nil, &err) && !isKnown {
		k.env.Host.ReportBroken(err)
	}
	k.EndCreations(err)
	return err
}

// Broken returns the failure that prevents further operations, or nil.
func (k *State) Broken() error {
	if err := k.brokenErr.Load(); err != nil {
		return *err
	}
	return nil
}

// IsIdle reports whether no operation is in progress except on a caller's goroutine.
func (k *State) IsIdle() bool {
	return k.pendingDups.Load() == 0 && (!k.hasResources.Load() || k.nonblocking.unfinishedCount.Load() == 0)
}

// BeginDup begins the creation of a duplicate, which uses Children until EndDup. It is called inside
// Do.
func (k *State) BeginDup() { k.pendingDups.Add(1) }

// EndDup ends a creation of BeginDup. The ids that are left are refused if the operations are
// broken, because this rank then creates no further communicators.
func (k *State) EndDup() {
	if why := k.Broken(); why != nil {
		k.env.Host.Refuse(k.Children.UnassignedIDs(), why)
	}
	k.pendingDups.Add(-1)
}

// SetPromote sets the function that hands an Early of the communicator to the engine.
func (k *State) SetPromote(f func()) { k.promoteEarly = f }

// SkipOperations counts n operations that were not called. It is for tests.
func (k *State) SkipOperations(n uint32) { k.operationCount += n }
