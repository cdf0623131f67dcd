package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
)

// A CommOption is an option of CommFromGroup.
type CommOption func(map[string]string)

// WithCommParam sets a parameter of communicator scope, such as cid.policy, for
// the new communicator and those made from it. All members should pass the same.
// An unknown parameter, a bad value or another scope is ErrConfig.
func WithCommParam(name, value string) CommOption {
	return func(set map[string]string) { set[name] = value }
}

// CommFromGroup creates a communicator from a group (MPI_Comm_create_from_group). It is collective over g. Every member calls it with an equal group
// and the same tag, and it blocks until all have. The tag separates creations that overlap in time. It may be reused after the call. It is the name of
// the communicator (Name) until SetName.
//
// Under some launchers every process of the job must call CommFromGroup with an equal group (value all of the bootstrap's parameter exchange). A
// process outside of the group gets ErrGroup, under such a launcher after all have called, and otherwise at once.
//
// Errors: ErrNoComm for an empty group; ErrGroup if the caller is no member; ErrTimeout with a *MissingError that names the members that have not
// called within bootstrap.timeout; ErrProcFailed if a member has failed; ErrUnsupported if the members have no PML in common.
func CommFromGroup(ctx context.Context, g *Group, tag string, opts ...CommOption) (*Comm, error) {
	if g.Size() == 0 {
		return nil, fmt.Errorf("%w: the group is empty", ErrNoComm)
	}
	if g.hasRanks() {
		return nil, fmt.Errorf("%w: it has goroutine ranks, which no process set names: use Comm.CreateGroup", ErrGroup)
	}
	if g.rank == Undefined {
		if err := g.session.process.StandBy(background(ctx), g.processes(), tag); err != nil {
			return nil, fmt.Errorf("communicator from a group of others: %w", err)
		}
		return nil, fmt.Errorf("%w: the caller, %s, is not in it", ErrGroup, g.session.process.identity.Proc)
	}
	s := g.session
	values, err := commValues(s.paramValues, opts)
	if err != nil {
		return nil, err
	}
	if _, err := s.process.ForcedAlgorithms(values); err != nil {
		return nil, err
	}
	if err := s.hold(&s.commCount); err != nil { // During the creation.
		return nil, err
	}
	defer s.drop(&s.commCount)
	c, err := fromGroup(ctx, g, tag, values)
	if err != nil {
		return nil, fmt.Errorf("communicator from group: %w", err)
	}
	return c, nil
}

func commValues(values *framework.Values, opts []CommOption) (*framework.Values, error) {
	if len(opts) == 0 {
		return values, nil
	}
	set := map[string]string{}
	for _, opt := range opts {
		opt(set)
	}
	for name := range set {
		if spec, ok := values.Spec(name); ok && spec.Scope != framework.ScopeCommunicator {
			return nil, fmt.Errorf("%w: parameter %s has %s scope, and cannot be set for one communicator", ErrConfig, name, spec.Scope)
		}
	}
	return values.With("WithCommParam", set)
}

func fromGroup(ctx context.Context, g *Group, tag string, values *framework.Values) (*Comm, error) {
	policy, err := policyOf(values)
	if err != nil {
		return nil, err
	}
	defer g.session.process.HoldPeers()()
	m, spec, err := g.session.process.WireUp(background(ctx), g.processes(), g.rank, tag, policy)
	if err != nil {
		return nil, err
	}
	c, err := newComm(g.session, nil, g, m, spec, values)
	if err == nil {
		c.SetName(tag)
	}
	return c, err
}

func policyOf(values *framework.Values) (cid.Policy, error) {
	var p core.CID
	if err := values.Decode("cid", &p); err != nil {
		return cid.Auto, err
	}
	return cid.ParsePolicy(p.Policy)
}
