package mpi

import (
	"context"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// Dynamic process sets (paper "Towards Dynamic Resource Management with MPI Sessions and PMIx") let a job grow and shrink while it runs. The program
// requests a change by an operation on process sets (PsetOp), or queries a change requested by a user (ResourceChange). The delta is the set of
// processes that join or leave. All members of the set and of the delta agree on the change by Integrate. The members then create a communicator of
// the new main set, and one of them calls FinishChange.

// PsetOp is an operation on process sets.
type PsetOp = bootstrap.PsetOp

// Operations on process sets. Sets are immutable. Each operation creates new sets and returns their names.
const (
	PsetUnion        = bootstrap.PsetUnion        // Result: one set with the members of any of the sets.
	PsetDifference   = bootstrap.PsetDifference   // Result: one set with the members of the first set that are in no other set.
	PsetIntersection = bootstrap.PsetIntersection // Result: one set with the members of all sets.
	PsetSplit        = bootstrap.PsetSplit        // A set for each of PsetArgs.Sizes.
	PsetAdd          = bootstrap.PsetAdd          // Result: the delta with new processes.
	PsetSub          = bootstrap.PsetSub          // Result: the delta with the last members, which leave.
	PsetGrow         = bootstrap.PsetGrow         // The delta of Add, and the new main set.
	PsetShrink       = bootstrap.PsetShrink       // The delta of Sub, and the new main set.
	PsetReplace      = bootstrap.PsetReplace      // The delta that leaves, the delta that joins, and the new main set.
)

// PsetArgs are the arguments of a PsetOp.
type PsetArgs = bootstrap.PsetArgs

// ChangeType is the kind of a change.
type ChangeType = bootstrap.ChangeType

// The kinds of changes.
const (
	ChangeAdd     = bootstrap.ChangeAdd     // The delta joins.
	ChangeSub     = bootstrap.ChangeSub     // The delta leaves.
	ChangeReplace = bootstrap.ChangeReplace // One delta leaves, and another one joins.
	ChangeFailed  = bootstrap.ChangeFailed  // The delta has ended. Neither Integrate nor FinishChange is needed.
)

// Change is a change of the processes of a set.
type Change = bootstrap.Change

// Integration is the result of Integrate.
type Integration = bootstrap.Integration

// changer is waitingChanger for calls that end by the deadline of the wire-up.
func changer[T any](ctx context.Context, s *Session, what string, f func(context.Context, bootstrap.Changer) (T, error)) (T, error) {
	return waitingChanger(ctx, s, what, func(ctx context.Context, c bootstrap.Changer) (T, error) {
		ctx, cancel := s.process.Bound(ctx)
		defer cancel()
		return f(ctx, c)
	})
}

// waitingChanger calls f with the bootstrap's interface for changes of the job. Errors contain what as the name of the call.
func waitingChanger[T any](ctx context.Context, s *Session, what string, f func(context.Context, bootstrap.Changer) (T, error)) (result T, err error) {
	if err := s.enter(); err != nil {
		return result, err
	}
	if hasEnded(ctx) {
		return result, ended(ctx, what, context.Cause(ctx))
	}
	c, ok := framework.As[bootstrap.Changer](s.process.Client())
	if !ok {
		return result, fmt.Errorf("%s: %w: the job's processes do not change under this launcher: use ferry run", what, ErrUnsupported)
	}
	ctx = background(ctx)
	result, err = f(ctx, c)
	return result, ended(ctx, what, err)
}

// PsetOp creates process sets from others (MPIX_Pset_op of paper 003), and returns their names. Split returns one for each size. Add and Sub return
// the delta. Grow and Shrink return the delta and the new main set. Replace returns the leaving delta, the joining delta and the new main set. The
// other operations return one name. Add, Sub, Grow, Shrink and Replace begin a change of the job. Operations that add processes block until
// these have been started.
//
// Errors: ErrPset for a name that is unknown, deleted, reserved or in use; ErrRank for numbers that the set does not have; ErrPending for processes
// in another change; ErrUnsupported above a limit, with the number that is possible, and under launchers that cannot start processes. After an
// error no set has changed.
func (s *Session) PsetOp(ctx context.Context, op PsetOp, psets []string, args PsetArgs) ([]string, error) {
	return changer(ctx, s, op.String(), func(ctx context.Context, c bootstrap.Changer) ([]string, error) {
		return c.Operate(ctx, op, psets, args)
	})
}

// ResourceChange returns the change in progress of a set, or otherwise a ChangeFailed if members have ended (MPIX_Query_resource_change of
// paper 003). It does not block. The result is false if there is no change. mpi://SELF stands for the change whose delta contains the caller.
func (s *Session) ResourceChange(ctx context.Context, pset string) (Change, bool, error) {
	type answer struct {
		Change
		ok bool
	}
	a, err := changer(ctx, s, "resource change", func(ctx context.Context, c bootstrap.Changer) (answer, error) {
		change, ok, err := c.Query(ctx, pset, false)
		return answer{change, ok}, err
	})
	return a.Change, a.ok, err
}

// Integrate agrees on a change (MPIX_Integrate_resource_change of paper 003). It is collective over the set of the change and the delta, except for
// members that have ended. provide, if not empty, names the new main set for all members. At most one member provides a name. Pset of the result is
// that name, or Change.Main. If Terminate is set, the caller closes its sessions and ends within the launcher's grace period.
//
// Errors, in all members: ErrPset for a wrong delta, with the right one, and for two names; ErrProcFailed and ErrTimeout if a member has failed or
// does not join; ErrCanceled if the requester has withdrawn the change. They undo the change.
func (s *Session) Integrate(ctx context.Context, delta, provide string) (Integration, error) {
	return changer(ctx, s, "integrate", func(ctx context.Context, c bootstrap.Changer) (Integration, error) {
		return c.Integrate(ctx, delta, provide)
	})
}

// FinishChange ends a change that has been integrated. Any member may call it. ErrPending before
// the integration is complete.
func (s *Session) FinishChange(ctx context.Context, delta string) error {
	return s.change(ctx, "finish change", func(ctx context.Context, c bootstrap.Changer) error { return c.FinishChange(ctx, delta) })
}

// DeletePset deletes a process set and its data. The creator may delete it while no change uses it, and any member
// once the creator has ended. Groups that were made of the set stay as they are. A deleted delta remains the mpi://WORLD of the
// processes that it added. Built-in sets cannot be deleted.
func (s *Session) DeletePset(ctx context.Context, name string) error {
	return s.change(ctx, "delete process set", func(ctx context.Context, c bootstrap.Changer) error { return c.DeletePset(ctx, name) })
}

// PublishData stores a value under a key of a process set, in place of an earlier one. value is the
// caller's again at the return. A value of more than 1 MiB, or a key of more than 1 KiB, is ErrUnsupported.
func (s *Session) PublishData(ctx context.Context, pset, key string, value []byte) error {
	return s.change(ctx, "publish data", func(ctx context.Context, c bootstrap.Changer) error { return c.PublishData(ctx, pset, key, value) })
}

// LookupData returns the value under a key of a process set. It waits for the key, until ErrTimeout
// (bootstrap.timeout). The result is the caller's.
func (s *Session) LookupData(ctx context.Context, pset, key string) ([]byte, error) {
	return changer(ctx, s, "lookup data", func(ctx context.Context, c bootstrap.Changer) ([]byte, error) {
		return c.LookupData(ctx, pset, key)
	})
}

// change is changer for calls without a result.
func (s *Session) change(ctx context.Context, what string, f func(context.Context, bootstrap.Changer) error) error {
	_, err := changer(ctx, s, what, func(ctx context.Context, c bootstrap.Changer) (struct{}, error) {
		return struct{}{}, f(ctx, c)
	})
	return err
}

// PsetOpAsync starts a PsetOp.
func (s *Session) PsetOpAsync(op PsetOp, psets []string, args PsetArgs) *Future[[]string] {
	return async(s, func(ctx context.Context) ([]string, error) { return s.PsetOp(ctx, op, psets, args) })
}

// ResourceChangeAsync returns a Future that completes when the set has a change that this process has
// not been given yet. It has no deadline. A process that closes all its sessions and opens another one is given
// the change again.
func (s *Session) ResourceChangeAsync(pset string) *Future[Change] {
	return async(s, func(ctx context.Context) (Change, error) {
		return waitingChanger(ctx, s, "resource change", func(ctx context.Context, c bootstrap.Changer) (Change, error) {
			change, _, err := c.Query(ctx, pset, true)
			return change, err
		})
	})
}

// IntegrateAsync starts an Integrate.
func (s *Session) IntegrateAsync(delta, provide string) *Future[Integration] {
	return async(s, func(ctx context.Context) (Integration, error) { return s.Integrate(ctx, delta, provide) })
}

// FinishChangeAsync starts a FinishChange.
func (s *Session) FinishChangeAsync(delta string) *Future[struct{}] {
	return async(s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.FinishChange(ctx, delta) })
}

// DeletePsetAsync starts a DeletePset.
func (s *Session) DeletePsetAsync(name string) *Future[struct{}] {
	return async(s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.DeletePset(ctx, name) })
}

// PublishDataAsync starts a PublishData. value is the library's until the Future is done.
func (s *Session) PublishDataAsync(pset, key string, value []byte) *Future[struct{}] {
	return async(s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.PublishData(ctx, pset, key, value)
	})
}

// LookupDataAsync starts a LookupData.
func (s *Session) LookupDataAsync(pset, key string) *Future[[]byte] {
	return async(s, func(ctx context.Context) ([]byte, error) { return s.LookupData(ctx, pset, key) })
}

// asyncs counts the goroutines of the library that use a session's engine without an operation of the program that waits for them,
// such as asynchronous calls and the cleanup after a failed operation. The engine is freed after their end.
type asyncs struct {
	mu sync.Mutex
	// Of all of them; nil before the first one.
	ctx        context.Context
	cancel     context.CancelFunc
	isEnded    bool
	goroutines sync.WaitGroup
}

// enter counts a goroutine, which ends with leave. ErrClosed after end.
func (a *asyncs) enter() (ctx context.Context, leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isEnded {
		return nil, nil, closedSession()
	}
	if a.ctx == nil {
		a.ctx, a.cancel = context.WithCancel(context.Background())
	}
	a.goroutines.Add(1)
	return a.ctx, a.goroutines.Done, nil
}

// run calls f in the caller's goroutine, unless the session has ended.
func (a *asyncs) run(f func(ctx context.Context)) {
	if ctx, leave, err := a.enter(); err == nil {
		defer leave()
		f(ctx)
	}
}

// spawn is run in a new goroutine, which is counted when spawn returns.
func (a *asyncs) spawn(f func(ctx context.Context)) {
	if ctx, leave, err := a.enter(); err == nil {
		go func() {
			defer leave()
			f(ctx)
		}()
	}
}

// end cancels the context of all goroutines, and waits for their end. The session is closed.
func (a *asyncs) end() {
	a.mu.Lock()
	a.isEnded = true
	cancel := a.cancel
	a.mu.Unlock()
	if cancel != nil {
		cancel()
		a.goroutines.Wait()
	}
}
