package assembly

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/compose"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// Team is the goroutine ranks of a thread communicator in this process. AddComm creates their communicators. Communicators with members in
// other processes have a handle in the team's PML.
type Team struct {
	*threads.Team
	processPML     PML
	ownIncarnation framework.Incarnation
	hooks          pml.Hooks
	// A joiner combines a rank's queue and its PML handle into one Comm if the PML cannot be watched. It is nil
	// before the first such communicator.
	joinerByEndpoint []atomic.Pointer[compose.Joiner]
}

// NewTeam returns n goroutine ranks with the endpoints 0 to n-1. m carries their messages with other processes. The caller closes the team
// before the assembly.
func (a *Assembly) NewTeam(m PML, n int) *Team { return a.Stack.NewTeam(m, n, a.threadParams) }

// NewTeam is Assembly.NewTeam for a stack.
func (s *Stack) NewTeam(m PML, n int, params threads.Params) *Team {
	t := &Team{processPML: m, ownIncarnation: s.env.Self, hooks: s.hooks, joinerByEndpoint: make([]atomic.Pointer[compose.Joiner], n)}
	t.Team = threads.NewTeamOver(s.env.Self, s.env.Engine, n, params, s.hooks, &below{m, t})
	return t
}

// AddComm creates the handle of one rank for a communicator. The endpoint is that of spec.Members.Member(spec.Rank). It reserves an id if
// there are members in other processes.
func (t *Team) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	if spec.Rank < 0 || spec.Rank >= spec.Members.Len() {
		return nil, fmt.Errorf("%w: rank %d of a communicator of %d", framework.ErrGroup, spec.Rank, spec.Members.Len())
	}
	return t.Rank(int(spec.Members.Member(spec.Rank).Endpoint)).AddComm(spec)
}

// Engine returns the engine of an endpoint, in which its requests complete. Sends to other processes
// complete in the process's engine.
func (t *Team) Engine(endpoint int) *progress.Engine { return t.Rank(endpoint).Engine() }

// Caps returns the capabilities of messages between any two ranks of a communicator.
func (t *Team) Caps() pml.Caps { return compose.Caps(t.processPML.Caps(), t.Team.Caps()) }

// Route returns the route to the ranks of a process.
func (t *Team) Route(peer framework.Incarnation) pml.Route {
	if peer == t.ownIncarnation {
		return t.Team.Route()
	}
	return t.processPML.Route(peer)
}

// below is a PML below a team.
type below struct {
	PML
	team *Team
}

// AddComm implements threads.Below.
func (b *below) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	table := b.CIDs()
	local, err := table.Reserve()
	if err != nil {
		return nil, fmt.Errorf("pml %s: %w", b.Name, err)
	}
	spec.Local, spec.Agreed, spec.Indices = local, false, nil
	c, err := b.Module.AddComm(spec)
	if err != nil {
		table.Close(local)
	}
	return c, err
}

// Join implements threads.Below.
func (b *below) Join(spec pml.CommSpec, queue, handle pml.Comm) (pml.Comm, error) {
	watchable, ok := framework.As[pml.Watchable](queue)
	if !ok {
		return nil, fmt.Errorf("%w: goroutine ranks: their messages cannot be watched", framework.ErrUnsupported)
	}
	endpoint := int(spec.Members.Member(spec.Rank).Endpoint)
	joiner := b.team.joinerByEndpoint[endpoint].Load()
	if joiner == nil {
		b.team.joinerByEndpoint[endpoint].CompareAndSwap(nil, compose.NewJoiner(b.team.Engine(endpoint), b.team.hooks))
		joiner = b.team.joinerByEndpoint[endpoint].Load()
	}
	return joiner.Join(spec, &compose.Sides{OnNode: spec.Elsewhere}, queue, handle, watchable, nil), nil
}

// Uses reports whether an operation of a rank that is not complete uses a part of the memory. Its operations with other processes in the
// process's PMLs are theirs.
func (t *Team) Uses(endpoint int, memory []byte) bool {
	joiner := t.joinerByEndpoint[endpoint].Load()
	return t.Rank(endpoint).Uses(memory) || joiner != nil && joiner.Uses(memory)
}

// Inspect describes the queues of a rank. It returns within 100 ms, as pml.Module.Inspect does.
func (t *Team) Inspect(ctx context.Context, endpoint int) (pml.Inspection, error) {
	all, err := t.Rank(endpoint).Inspect(ctx)
	joiner := t.joinerByEndpoint[endpoint].Load()
	if joiner == nil || err != nil {
		return all, err
	}
	err = t.Engine(endpoint).Observe(ctx, func() {
		all.Comms = compose.Merge(all.Comms, joiner.Inspect())
	})
	return all, err
}
