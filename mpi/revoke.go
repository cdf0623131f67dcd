package mpi

import (
	"errors"
	"fmt"
	"maps"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Of Comm.stateBits.
const (
	stateClosed   uint32 = 1 << iota // Close was called.
	stateRevoked                     // A member has revoked the communicator.
	stateIsolated                    // The bootstrap has reported this process dead.
	stateReported                    // The other members are notified of the revocation.
)

// Revoke revokes the communicator in all members (MPIX_Comm_revoke). One member calls it. It returns once the notification
// is on its way, after a second at the latest, and waits for no member. All live members are notified, although the caller may fail
// or exit as soon as Revoke has returned. In each of them, pending sends, receives, probes, collectives and
// creations of communicators end with ErrRevoked, except for operations with a matched message, which complete. All
// later calls return ErrRevoked, except Agree, Shrink, Close and local calls. A nonblocking call starts, and its Wait returns
// ErrRevoked. The message of an earlier matched probe can be received. Other communicators, such as duplicates, are not revoked.
//
// Revoking again is harmless, in any member. ErrClosed after Close. On another error, such as ErrUnsupported or ErrTransport, the
// communicator is revoked in this process only.
func (c *Comm) Revoke() error {
	e := c.session.process
	switch state := c.stateBits.Load(); {
	case state&stateClosed != 0:
		return c.errClosed()
	case state&stateIsolated != 0:
		return *c.terminalErr.Load()
	case state&stateReported != 0:
		return nil
	}
	end := c.watchRevoke()
	e.Env().Logger.Debug("this process revokes a communicator", "comm", c.spec.ID.String())
	e.revoke(c.spec.ID, e.identity.Proc, stateRevoked)
	err := e.Revoke(c.spec.ID, c.group.processes())
	if err == nil {
		c.stateBits.Or(stateReported)
	}
	if end != nil {
		end(err)
	}
	return err
}

// Revoked reports whether a member has revoked the communicator, as far as this process is notified
// (MPIX_Comm_is_revoked). It is local.
func (c *Comm) Revoked() bool { return c.stateBits.Load()&stateRevoked != 0 }

// CommRevoked implements assembly.Watcher.
func (e *process) CommRevoked(id cid.Extended, by framework.Proc) {
	e.revoke(id, by, stateRevoked|stateReported)
}

// revoke revokes all handles of a communicator in this process, now and later. state has stateRevoked.
func (e *process) revoke(id cid.Extended, by Proc, state uint32) {
	e.mu.Lock()
	here := e.handles(id)
	if (len(here) == 0 || here[0].threadRank != nil) && !e.areAllAbsent(id) {
		e.earlyRevocations.add(id, revocation{by, state})
	}
	here = append(here, e.contexts(id)...)
	e.mu.Unlock()
	for _, c := range here {
		c.revokedBy(by, state)
	}
}

// contexts returns the contexts of persistent collectives of a communicator, which outlive its Close while an operation is
// pending. e.mu held.
func (e *process) contexts(id cid.Extended) (all []*Comm) {
	for _, c := range e.openComms {
		if c.contextOf == id {
			all = append(all, c)
		}
	}
	return all
}

// revocation is one of a communicator that not all ranks of this process have yet.
type revocation struct {
	revokingProc Proc
	// Of Comm.stateBits.
	stateBits uint32
}

// revocations has them by communicator, without a limit, because a member that misses one would wait forever. Guarded by
// process.mu.
type revocations map[cid.Extended]revocation

// add keeps the first revocation of a communicator.
func (l *revocations) add(id cid.Extended, r revocation) {
	if *l == nil {
		*l = revocations{}
	}
	if _, isKept := (*l)[id]; !isKept {
		(*l)[id] = r
	}
}

// take returns the revocation of a new handle. It stays for the handles of other goroutine ranks.
func (l revocations) take(c *Comm) (r revocation, ok bool) {
	if r, ok = l[c.spec.ID]; ok && c.threadRank == nil {
		delete(l, c.spec.ID)
	}
	return r, ok
}

// drop drops the revocation of a communicator that is closed in this process.
func (l revocations) drop(id cid.Extended) { delete(l, id) }

// dropSpan drops the revocations of a span of communicators of goroutine ranks, after the end of the ranks.
func (l revocations) dropSpan(s cid.Span) {
	maps.DeleteFunc(l, func(id cid.Extended, _ revocation) bool { return s.Has(id) })
}

// revokedBy revokes this handle. state has stateRevoked.
func (c *Comm) revokedBy(by Proc, state uint32) {
	who := fmt.Sprintf("process %d of %s", by.Rank, by.Namespace)
	if rank := c.group.members.rank(member{Proc: by}); rank >= 0 {
		who = fmt.Sprintf("rank %d", rank)
	}
	c.terminate(state, fmt.Errorf("%w by %s: continue on the communicator that Shrink returns", ErrRevoked, who))
}

// isolate ends all operations of a process that the bootstrap has reported dead. Other processes drop its messages.
func (c *Comm) isolate(reason string) {
	self := c.session.process.Env().Self
	err := fmt.Errorf("this process was reported dead: %w", pml.ProcFailed(c.spec.Members, c.ranksOfProcess(self), reason))
	c.terminate(stateIsolated, err)
	c.pml.Abort(pml.Control, err)
}

// terminate ends all pending and later operations. An operation that has passed the check of the state before fails in
// the PML, because its planes are aborted later.
func (c *Comm) terminate(state uint32, err error) {
	if state&stateIsolated != 0 {
		c.terminalErr.Store(&err)
		c.failAgreements(err)
	} else {
		c.terminalErr.CompareAndSwap(nil, &err)
	}
	if before := c.stateBits.Or(state); before&state&(stateRevoked|stateIsolated) != 0 {
		return
	}
	c.mu.Lock()
	contexts := maps.Clone(c.contexts)
	c.mu.Unlock()
	for d := range contexts {
		d.terminate(state, err)
	}
	k := &c.collective
	_ = k.Fail(err)
	c.pml.Abort(pml.PointToPoint, err)
	c.partitions.fail(c, err)
	k.Abort(err)
	k.LeaveUnassigned(err)
}

// isClosed reports whether Close was called.
func (c *Comm) isClosed() bool { return c.stateBits.Load()&stateClosed != 0 }

// terminalError returns the error of calls on a revoked communicator or in an isolated process. Otherwise nil.
func (c *Comm) terminalError() error {
	if c.stateBits.Load()&(stateRevoked|stateIsolated) == 0 {
		return nil
	}
	return *c.terminalErr.Load()
}

// callError is terminalError, or ErrClosed.
func (c *Comm) callError() error {
	if c.isClosed() {
		return c.errClosed()
	}
	return c.terminalError()
}

// startNone starts a nonblocking operation that has no peer or ends with terminalError. It reports
// false for any other. null and err are of the check of the arguments.
func (c *Comm) startNone(null bool, err error) (Request, bool) {
	if err != nil {
		return Request{}, false
	}
	why := c.terminalError()
	switch {
	case why != nil:
		return c.startFailed(why), true
	case null:
		return c.rankState.nullRequests.request(nullStatus()), true
	}
	return Request{}, false
}

// startFailed starts a nonblocking operation that ends with err.
func (c *Comm) startFailed(err error) Request {
	st := noMessage()
	st.Err = err
	return c.rankState.nullRequests.request(st)
}

// started returns the handle of a nonblocking operation. A revocation that came after the check of the state is reported by Wait.
func (c *Comm) started(r *pml.Request, err error) (Request, error) {
	if err != nil {
		if why := c.terminalError(); why != nil && !errors.Is(err, ErrClosed) {
			return c.startFailed(why), nil
		}
	}
	return started(r, err)
}
