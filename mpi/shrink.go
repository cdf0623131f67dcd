package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/agreement"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// Shrink creates a communicator of the live members, in the order of their ranks (MPIX_Comm_shrink). It is collective over
// them, and works although members have failed, the communicator is revoked or its collectives are broken. Each process that
// was reported dead to a member before the call is left out, and so is a member that has closed the
// communicator or its session. Attributes are not copied. The communicator itself stays as it is.
//
// Shrink returns neither ErrProcFailed nor ErrRevoked. If a member fails during the call, the result may have it as a
// member. If two live members are disconnected, all members connect again.
//
// If ctx ends, this rank gets an error and is left out of the result. If the other members had included it by then, Shrink ends
// without an error, or operations of the other members that wait for this rank end with an error.
//
// Further errors are those of Agree. In addition, an error in all members if a member cannot connect to another one.
func (c *Comm) Shrink(ctx context.Context) (d *Comm, err error) {
	a := c.agreement()
	if err := a.begin(ctx, agreement.Shrink, "shrink"); err != nil {
		return nil, fmt.Errorf("shrink: %w", err)
	}
	defer func() { a.end(err) }()
	if d, err = a.shrink(ctx); err != nil {
		return nil, ended(ctx, "shrink", err)
	}
	return d, nil
}

// errConnect is the error of a failed wire-up in members that were connected.
var errConnect = errors.New("another member could not connect")

func (a *agreements) shrink(ctx context.Context) (*Comm, error) {
	for {
		o, err := a.propose(ctx)
		if err != nil {
			return nil, err
		}
		if !o.WireUp {
			return a.c.createShrunk(&o)
		}
		d, failure := a.c.wireUpShrunk(ctx, &o, a.instance())
		created, err := a.confirm(ctx, &o, failure == nil)
		if err == nil && a.c.isConfirmed(&o, &created) {
			return d, nil
		}
		if d != nil {
			_ = d.Close()
		}
		switch {
		case err != nil:
			if d != nil { // Others may have it.
				a.c.refuse(d.spec.ID, d.group, err)
			}
			return nil, err
		case !a.c.haveChanged(&o, &created):
			if failure == nil {
				failure = errConnect
			}
			return nil, fmt.Errorf("%w: %w", ErrTransport, failure)
		}
	}
}

// propose agrees on the members and the id of a new communicator.
func (a *agreements) propose(ctx context.Context) (agreement.Outcome, error) {
	e := a.c.session.process
	call := a.call(agreement.Shrink)
	call.Flags = 1
	call.IsExcluded = hasEnded(ctx)
	call.WireUp = a.c.isDisconnected(call.FailedRanks)
	var err error
	if call.ID, err = e.drawSpare(context.WithoutCancel(background(ctx))); err != nil {
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(err)
		ctx, call.IsExcluded = ended, true // The other members do not wait for this one.
	}
	o, err := a.run(ctx, agreementCall{Call: call})
	if err != nil {
		return o, err
	}
	if o.ID != call.ID {
		e.keepSpare(call.ID)
	}
	if err := a.check(&o); err != nil {
		return o, err
	}
	if hasRank(o.ExcludedRanks, a.c.rank) {
		a.input(func(*agreement.Machine) { a.follow(&o) })
		return o, context.Cause(ctx)
	}
	if o.ID.Base == 0 {
		return o, fmt.Errorf("%w: the coordinator has no communicator id; its error has the reason", ErrTransport)
	}
	return o, nil
}

// confirm agrees on whether all members have the communicator of the outcome proposed.
func (a *agreements) confirm(ctx context.Context, proposed *agreement.Outcome, isCreated bool) (agreement.Outcome, error) {
	call := a.call(agreement.Shrink)
	call.IsExcluded = hasEnded(ctx)
	if isCreated {
		call.Flags = 1
	}
	o, err := a.run(ctx, agreementCall{Call: call, confirmedOutcome: proposed})
	if err == nil {
		err = a.check(&o)
	}
	return o, err
}

// isConfirmed reports whether all members of the outcome proposed have created its communicator, and none has left Shrink.
func (c *Comm) isConfirmed(proposed, o *agreement.Outcome) bool {
	hasLeft := func(rank int) bool { return hasRank(o.ExcludedRanks, rank) }
	return o.Flags&1 != 0 && !slices.ContainsFunc(c.survivors(proposed), hasLeft)
}

// haveChanged reports whether members of the outcome o have failed or ended their calls since.
func (c *Comm) haveChanged(o, later *agreement.Outcome) bool {
	return !slices.Equal(c.survivors(o), c.survivors(later))
}

// instance returns the number of the current instance.
func (a *agreements) instance() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine.Instance()
}

// isDisconnected reports whether this process is disconnected from a member other than the failed ones. Goroutine ranks
// do not wire up.
func (c *Comm) isDisconnected(failed []int) bool {
	if c.threadRank != nil {
		return false
	}
	var live []Proc
	for rank, m := range c.group.members.all() {
		if c.session.process.IsStream(c.spec.Members.Member(rank).Incarnation) { // Its stack stays disconnected.
			return false
		}
		if !hasRank(failed, rank) {
			live = append(live, m.Proc)
		}
	}
	return c.session.process.IsDisconnected(live)
}

// survivors returns the ranks of the new communicator.
func (c *Comm) survivors(o *agreement.Outcome) (ranks []int) {
	for rank := range c.size {
		if !hasRank(o.FailedRanks, rank) && !hasRank(o.ExcludedRanks, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// createShrunk creates the communicator of an outcome, as CreateGroup does.
func (c *Comm) createShrunk(o *agreement.Outcome) (*Comm, error) {
	ranks := c.survivors(o)
	members, group := c.membersOf(o.ID, ranks)
	spec := pml.CommSpec{ID: o.ID, Rank: slices.Index(ranks, c.rank), Members: members}
	return c.child(&Group{session: c.session.user(), self: c.group.self, members: group, rank: spec.Rank}, spec)
}

// wireUpShrunk creates the communicator of an outcome by a group construct, which connects disconnected members again.
func (c *Comm) wireUpShrunk(ctx context.Context, o *agreement.Outcome, instance uint64) (*Comm, error) {
	ranks := c.survivors(o)
	g, err := c.group.Incl(ranks...)
	if err != nil {
		return nil, err
	}
	policy, err := policyOf(c.paramValues)
	if err != nil {
		return nil, err
	}
	e := c.session.process
	defer e.HoldPeers()()
	m, spec, err := e.WireUp(background(ctx), g.processes(), g.rank, fmt.Sprintf("\x00shrink %v %d", c.spec.ID, instance), policy)
	if err != nil {
		return nil, err
	}
	return newComm(c.session, nil, g, m, spec, c.paramValues)
}

// drawSpare returns an id that keepSpare has kept, or draws one.
func (e *process) drawSpare(ctx context.Context) (cid.Extended, error) {
	e.mu.Lock()
	id := e.spareID
	e.spareID = cid.Extended{}
	e.mu.Unlock()
	if id.Base != 0 {
		return id, nil
	}
	return e.draw(ctx)
}

// keepSpare keeps an id that no communicator has.
func (e *process) keepSpare(id cid.Extended) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spareID = id
}
