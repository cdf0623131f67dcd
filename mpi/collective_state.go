package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
)

// collective is the state of a communicator's collective operations. One operation at a time is in progress. Idup may overlap with others, and uses
// separate fields.
type collective struct {
	// Not 0 while a goroutine is in an operation, see acquire, or an earlyRun is active.
	busy  uint32
	early func() // Promotes the earlyRun, or nil.
	// Failure that prevents further operations.
	broken atomic.Pointer[error]
	idups  atomic.Int32 // Number in progress.
	waits  struct {
		sync.Mutex
		ends map[context.Context]context.CancelCauseFunc // Of contextUntilBroken.
		// Receives of refuseAnnouncement with their generations.
		announcements map[*pml.Request]uint32
	}

	// Error of all waits, now and later. Guarded by the engine's lock.
	abortErr error
	// Ranks that have left or failed. Guarded by the engine's lock.
	lostRanks map[int]error

	// Guarded by busy.
	c *Comm
	// Belongs to an Idup while one is in progress.
	children cid.Deriver
	rebases  int // Of children.
	// Ids that were unused at the beginning of the operation.
	unusedIDs cid.Span
	// unusedIDs was refused, see leave.
	hasLeft atomic.Bool
	// Last one that may be incomplete, or nil.
	idup *CommRequest
	// Number of operations, see nextTag.
	operationCount uint32

	// collectiveResources is created by the first operation that exchanges messages, which sets used.
	*collectiveResources
	used atomic.Bool
}

// collectiveResources has the resources for running operations. Most duplicates never need it. Guarded by busy.
type collectiveResources struct {
	peers   peers
	started nonblocking
	table   *coll.Table // Algorithms.
	force   *coll.Force
	// Algorithms without an instance.
	plainTable *coll.Table
	nodes      coll.Placement
	// Members compare their calls, see collective_check.go.
	comparesCalls bool
	offers        []coll.ComponentOffer
	// Some offers need an instance that is not open.
	hasUnopened       bool
	instances         []openInstance
	vectors           coll.Vectors
	vectorMemory      [4][]int // Memory of vectors.
	schedules         [maxSchedules]cachedSchedule
	replacedSchedules uint // Number of replaced schedules.
}

func (k *collective) init(c *Comm) {
	k.children = cid.NewDeriver(c.spec.ID)
	k.c = c
}

// comm returns the communicator of k.
func (k *collective) comm() *Comm { return k.c }

// lastIdup returns the Idup that precedes the next creation, or nil. The creation becomes its owner. Called inside do.
func (k *collective) lastIdup() *CommRequest {
	last := k.idup
	k.idup = nil
	return last
}

// errPanicked is the reason of a collective that has not returned.
var errPanicked = errors.New("an operation or hook of the program panicked in it")

// do runs one collective call f on bytes bytes. After an error or a panic, members may have different views of the completion, so that later
// operations fail. A panic continues in the caller, since f calls functions of the program (Op, KeyHooks).
func (k *collective) do(ctx context.Context, op string, bytes int, f func() error) (err error) {
	if err := k.enter(ctx); err != nil {
		return err
	}
	var end func(error)
	panicked := true
	defer func() {
		if panicked {
			err = fmt.Errorf("%s: %w", op, errPanicked)
			k.fail(err)
			unassigned, cause := k.unusedIDs, err // A closure over err moves the result of each call to the heap.
			// The panic may have come under the engine's lock, for which leave waits.
			k.comm().session.asyncs.spawn(func(context.Context) { k.leave(unassigned, cause) })
		}
		k.exit()
		if end != nil {
			end(err)
		}
	}()
	end = k.watch(ctx, op, bytes, k.operationCount, false)
	err = f()
	if _, agreed := errors.AsType[*mismatchError](err); err != nil && !errors.Is(err, ErrNoComm) && !agreed {
		err = k.failEntered(ended(ctx, op, err))
	}
	panicked = false
	return err
}

// enter begins a collective, unless it fails.
func (k *collective) enter(ctx context.Context) error {
	c := k.comm()
	if c.state.Load() != 0 {
		return c.callError()
	}
	if !k.acquire() {
		return fmt.Errorf("%w: another goroutine is in a collective operation of this communicator; use one communicator for each (Dup)", ErrPending)
	}
	err := k.checkUsable()
	if k.unusedIDs = (cid.Span{}); k.idups.Load() == 0 { // Otherwise an Idup may still use them.
		k.unusedIDs = k.children.UnassignedIDs()
	}
	if err != nil && !k.hasLeft.Load() { // Others may have created communicators that this member will not create.
		k.leave(k.unusedIDs, err)
	}
	if err == nil && hasEnded(ctx) {
		err = k.failEntered(ended(ctx, "collective", context.Cause(ctx)))
	}
	if err != nil {
		k.release()
	}
	return err
}

// exit ends the operation of enter.
func (k *collective) exit() {
	k.release()
	state := k.comm().state.Load()
	if state == 0 {
		return
	}
	if k.collectiveResources != nil && len(k.instances) > 0 && state&stateClosed != 0 {
		k.closeInstances()
	}
	if err := k.comm().terminalError(); err != nil {
		k.leaveUnassigned(err)
	}
}

// acquire acquires the communicator's collectives for one goroutine. It returns false if another goroutine has them. release releases them. Other
// processors may see that later.
func (k *collective) acquire() bool { return atomic.CompareAndSwapUint32(&k.busy, 0, busyInCall) }
func (k *collective) release()      { cpu.Store32(&k.busy, 0) }

// checkUsable returns ErrBroken if an earlier collective has failed, or terminalError.
func (k *collective) checkUsable() error {
	earlier := k.broken.Load()
	if earlier == nil {
		return nil
	}
	switch why := k.comm().terminalError(); {
	case why != nil:
		return why
	case errors.Is(*earlier, ErrBroken): // In another member.
		return *earlier
	default:
		return fmt.Errorf("%w: an earlier one failed: %w; "+wayOut, ErrBroken, *earlier)
	}
}

// failEntered is fail for a member that has entered.
func (k *collective) failEntered(err error) error {
	k.fail(err)
	k.leave(k.unusedIDs, err)
	return err
}

// leave ends the part of this member in collectives, whose senders may wait for its receives. It refuses the ids in unassigned, because other members may
// have created communicators with these ids in the operation. Those members are notified. An example is Split, which may succeed in one member and
// fail in another after the failure of a third.
func (k *collective) leave(unassigned cid.Span, err error) {
	if unassigned != (cid.Span{}) {
		k.hasLeft.Store(true)
		k.comm().refuseSpan(unassigned, err)
	}
	k.abort(err)
}

// close ends waits without a visible result for the user of the communicator. If another member has broken the collectives, other members may have
// created communicators that this one will not create.
func (k *collective) close() {
	if err := k.checkUsable(); err != nil {
		k.leaveUnassigned(err)
	}
	k.waits.Lock()
	defer k.waits.Unlock()
	for q, generation := range k.waits.announcements {
		_ = q.Cancel(generation) // No effect after its completion.
	}
}

// leaveUnassigned calls leave if neither a collective nor an Idup is in progress. Otherwise the end of that operation calls leave, unless it has read
// the state before the caller changed it. Agree, Shrink and Close therefore call leaveUnassigned again.
func (k *collective) leaveUnassigned(err error) {
	if k.hasLeft.Load() || !k.acquire() {
		return
	}
	if k.idups.Load() == 0 {
		k.leave(k.children.UnassignedIDs(), err)
	}
	k.release()
}

// wayOut is the remedy in errors of broken collectives.
const wayOut = "Shrink returns a communicator whose collectives work"

// fail makes all further collectives of this member fail, and notifies the other members, which would wait for it. Failures of processes and
// revocations are reported to them by other means.
func (k *collective) fail(err error) error {
	isKnown := errors.Is(err, ErrProcFailed) || errors.Is(err, ErrBroken) || errors.Is(err, ErrRevoked)
	if k.broken.CompareAndSwap(nil, &err) && !isKnown {
		c := k.comm()
		c.reportBroken(c.spec.ID, c.group, err)
	}
	k.endWaits(err)
	return err
}

// breakCollectives ends a communicator's collectives because another member has stopped taking part. Pending operations end, unless their messages have
// arrived.
func (c *Comm) breakCollectives(p Proc, reason string) {
	who := p.String()
	if c.threadRank != nil { // The reason names the rank.
		who = "a member"
	} else if rank := c.group.members.rank(member{Proc: p}); rank >= 0 {
		who = fmt.Sprintf("rank %d", rank)
	}
	err := fmt.Errorf("%w: %s no longer takes part in them: %s; "+wayOut, ErrBroken, who, reason)
	c.collective.abort(err)
	c.collective.fail(err)
}

// contextUntilBroken returns a context for waits of a creation that do not use messages of collectives. It ends when the collectives are broken. The caller
// calls stop.
func (k *collective) contextUntilBroken(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(background(ctx))
	k.waits.Lock()
	defer k.waits.Unlock()
	if earlier := k.broken.Load(); earlier != nil {
		cancel(*earlier)
	}
	if k.waits.ends == nil {
		k.waits.ends = map[context.Context]context.CancelCauseFunc{}
	}
	k.waits.ends[ctx] = cancel
	return ctx, func() {
		k.waits.Lock()
		defer k.waits.Unlock()
		delete(k.waits.ends, ctx)
		cancel(nil)
	}
}

func (k *collective) endWaits(why error) {
	k.waits.Lock()
	defer k.waits.Unlock()
	for _, cancel := range k.waits.ends {
		cancel(why)
	}
}
