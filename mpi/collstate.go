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

// collective is the state of a communicator's collective operations. One is in
// progress at a time; Idup, which may overlap with others, keeps to its own part
// of it.
type collective struct {
	busy   uint32                // Not 0 while a goroutine is in an operation, see take, or an earlyRun is active.
	early  func()                // Promotes the earlyRun, or nil.
	broken atomic.Pointer[error] // why no further one can work
	idups  atomic.Int32          // in progress
	waits  struct {
		sync.Mutex
		ends    map[context.Context]context.CancelCauseFunc // see untilBroken
		unheard map[*pml.Request]uint32                     // and their turns; see refuseUnheard
	}

	aborted error         // why nothing more may wait; guarded by the engine's lock
	gone    map[int]error // ranks that give nothing more; guarded by the engine's lock

	// Guarded by busy.
	c        *Comm
	children cid.Deriver  // idup's while that is in progress
	rebases  int          // Of children. idup's like those.
	unborn   cid.Span     // ids that were not given out when the operation began
	left     atomic.Bool  // and are refused; see leave
	idup     *CommRequest // the last one that may not be complete, or nil
	begun    uint32       // operations so far; see nextTag

	// machinery is made by the first operation that exchanges something: then used is true.
	*machinery
	used atomic.Bool
}

// machinery is what carries a communicator's operations out. Most duplicates never need
// it. Guarded by busy.
type machinery struct {
	peers     peers
	started   nonblocking
	table     *coll.Table // what components do here
	force     *coll.Force
	plain     *coll.Table // of those that need no instance
	nodes     coll.Placement
	check     bool // Members compare their calls; see collcheck.go.
	offers    []coll.Offered
	unopened  bool // some of those need an instance
	instances []opened
	vectors   coll.Vectors
	room      [4][]int // for vectors
	planned   [mostPlanned]planned
	replaced  uint // of planned, so far
}

func (k *collective) init(c *Comm) {
	k.children = cid.NewDeriver(c.spec.ID)
	k.c = c
}

// comm is the communicator that k is part of.
func (k *collective) comm() *Comm { return k.c }

// lastIdup returns the idup that the next creation comes after, which keeps it from
// now on, or nil. Inside do.
func (k *collective) lastIdup() *CommRequest {
	last := k.idup
	k.idup = nil
	return last
}

// errPanicked is what is known of a collective that did not return.
var errPanicked = errors.New("an operation or hook of the program panicked in it")

// do makes one collective call, which is f, of so many bytes. An error means that members don't agree
// any more on what has happened, so that further ones are refused. So does a panic,
// which goes on to the caller: f calls functions of the program (Op, KeyHooks).
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
			unborn, cause := k.unborn, err // A closure over err moves the result of each call to the heap.
			// The panic may have come under the engine's lock, for which leave waits.
			k.comm().session.asyncs.spawn(func(context.Context) { k.leave(unborn, cause) })
		}
		k.exit()
		if end != nil {
			end(err)
		}
	}()
	end = k.watch(ctx, op, bytes, k.begun, false)
	err = f()
	if _, agreed := errors.AsType[*differing](err); err != nil && !errors.Is(err, ErrNoComm) && !agreed {
		err = k.breaks(ended(ctx, op, err))
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
	if !k.take() {
		return fmt.Errorf("%w: another goroutine is in a collective operation of this communicator; use one communicator for each (Dup)", ErrPending)
	}
	err := k.works()
	if k.unborn = (cid.Span{}); k.idups.Load() == 0 { // otherwise one of those may be made yet
		k.unborn = k.children.Unborn()
	}
	if err != nil && !k.left.Load() { // others may have made by now what this won't make
		k.leave(k.unborn, err)
	}
	if err == nil && over(ctx) {
		err = k.breaks(ended(ctx, "collective", context.Cause(ctx)))
	}
	if err != nil {
		k.put()
	}
	return err
}

// exit ends what enter has begun.
func (k *collective) exit() {
	k.put()
	state := k.comm().state.Load()
	if state == 0 {
		return
	}
	if k.machinery != nil && len(k.instances) > 0 && state&stateClosed != 0 {
		k.closeInstances()
	}
	if err := k.comm().terminalError(); err != nil {
		k.leaveUnborn(err)
	}
}

// take begins what one goroutine at a time does with the communicator's collectives, unless
// another one is at it. It ends with put, which does not wait until others see it.
func (k *collective) take() bool { return atomic.CompareAndSwapUint32(&k.busy, 0, busyInCall) }
func (k *collective) put()       { cpu.Store32(&k.busy, 0) }

// works returns ErrBroken if an earlier collective has failed, or terminalError.
func (k *collective) works() error {
	earlier := k.broken.Load()
	if earlier == nil {
		return nil
	}
	switch why := k.comm().terminalError(); {
	case why != nil:
		return why
	case errors.Is(*earlier, ErrBroken): // in another member
		return *earlier
	default:
		return fmt.Errorf("%w: an earlier one failed: %w; "+wayOut, ErrBroken, *earlier)
	}
}

// breaks is fail for a member that has entered.
func (k *collective) breaks(err error) error {
	k.fail(err)
	k.leave(k.unborn, err)
	return err
}

// leave has this member receive nothing of collectives any more, which their senders wait
// for. It will be in no communicator that others may have made in the operation, whose ids
// are unborn, and those who wait for it there hear so: Split succeeds in one member and
// fails in another when a third one dies.
func (k *collective) leave(unborn cid.Span, err error) {
	if unborn != (cid.Span{}) {
		k.left.Store(true)
		k.comm().refuseSpan(unborn, err)
	}
	k.abort(err)
}

// close ends what waits for nothing that the communicator's user could still see. If another
// member broke the collectives, others may have made by now what this one won't make.
func (k *collective) close() {
	if err := k.works(); err != nil {
		k.leaveUnborn(err)
	}
	k.waits.Lock()
	defer k.waits.Unlock()
	for q, turn := range k.waits.unheard {
		_ = q.Cancel(turn) // unless it is over
	}
}

// leaveUnborn is leave when no collective is in progress, nor an Idup. The end of either does the same, unless it has
// read the state before the caller changed it. Agree, Shrink and Close call leaveUnborn again.
func (k *collective) leaveUnborn(err error) {
	if k.left.Load() || !k.take() {
		return
	}
	if k.idups.Load() == 0 {
		k.leave(k.children.Unborn(), err)
	}
	k.put()
}

// wayOut is the remedy in errors of collectives that are broken.
const wayOut = "Shrink returns a communicator whose collectives work"

// fail refuses all further collectives of this member, and notifies the others, which
// would wait for it. They are notified of a death, and of a revocation, without this member.
func (k *collective) fail(err error) error {
	isKnown := errors.Is(err, ErrProcFailed) || errors.Is(err, ErrBroken) || errors.Is(err, ErrRevoked)
	if k.broken.CompareAndSwap(nil, &err) && !isKnown {
		c := k.comm()
		c.tellBroken(c.spec.ID, c.group, err)
	}
	k.endWaits(err)
	return err
}

// brokenBy ends a communicator's collectives, because a member has stopped taking part.
// Operations that wait end, unless their messages have arrived.
func (c *Comm) brokenBy(p Proc, reason string) {
	who := p.String()
	if c.seat != nil { // The reason names the rank.
		who = "a member"
	} else if rank := c.group.members.rank(member{Proc: p}); rank >= 0 {
		who = fmt.Sprintf("rank %d", rank)
	}
	err := fmt.Errorf("%w: %s no longer takes part in them: %s; "+wayOut, ErrBroken, who, reason)
	c.collective.abort(err)
	c.collective.fail(err)
}

// untilBroken returns a context for a part of a creation that waits for others by another
// way than messages of collectives: it ends when these are broken, too. The caller calls
// stop.
func (k *collective) untilBroken(ctx context.Context) (_ context.Context, stop func()) {
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
