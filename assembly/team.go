package assembly

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// Team is the goroutine ranks that a thread communicator has in this process. Their communicators
// are made by AddComm.
type Team struct {
	*threads.Team
	assembly *Assembly
	module   PML
}

// NewTeam makes n goroutine ranks, with the endpoints 0 to n-1. m has their messages with
// other processes. The team is closed before the assembly.
func (a *Assembly) NewTeam(m PML, n int) *Team {
	return &Team{Team: threads.NewTeam(a.env.Self, a.env.Engine, n, a.threads), assembly: a, module: m}
}

// AddComm makes the handle that one of the ranks has of a communicator. The endpoint is that of
// spec.Members.Member(spec.Rank).
func (t *Team) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	if spec.Rank < 0 || spec.Rank >= spec.Members.Len() {
		return nil, fmt.Errorf("%w: rank %d of a communicator of %d", framework.ErrGroup, spec.Rank, spec.Members.Len())
	}
	return t.Rank(int(spec.Members.Member(spec.Rank).Endpoint)).AddComm(spec)
}

// Engine returns the engine of an endpoint, in which its requests complete.
func (t *Team) Engine(endpoint int) *progress.Engine { return t.Rank(endpoint).Engine() }
