package compose

import (
	"slices"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Joiner combines two Comms of the members of a communicator into one. All calls hold the lock of one engine, in which
// requests of the joined Comms complete. The joined Comms of a Joiner share its requests.
type Joiner struct {
	engine   *progress.Engine
	pmlHooks pml.Hooks

	// The engine's lock guards these fields.
	allRequests       []*request
	freeRequests      *request
	watchingWildcards map[*wildcards]struct{}
	// isClosed is set once planes are not returned to their Comm any more.
	isClosed bool
}

// NewJoiner returns a Joiner of the process's engine, or of the engine of a goroutine rank. hooks, which may
// be nil, are called under that engine's lock.
func NewJoiner(e *progress.Engine, hooks pml.Hooks) *Joiner {
	return &Joiner{engine: e, pmlHooks: hooks, watchingWildcards: map[*wildcards]struct{}{}}
}

// Sides has the Comm of each member, by rank. It is read-only and may be shared.
type Sides struct {
	// OnNode has the members of the node's Comm.
	OnNode *pml.RankSet
	// NotOnNode is CommSpec.Elsewhere of that Comm, if some members belong to neither Comm. nil is the complement of
	// OnNode.
	NotOnNode *pml.RankSet
	// IsWhole is set if each process has one rank.
	IsWhole bool
}

// isOnNode reports whether a member belongs to the node's Comm.
func (s *Sides) isOnNode(rank int) bool {
	if s.NotOnNode == nil {
		return s.OnNode.Has(rank)
	}
	return !s.NotOnNode.Has(rank)
}

// Join combines two Comms. The node's is Watchable. The network's is called under the lock of the Joiner's engine (for
// a goroutine rank see base.Deferring). Closing the result closes both and then calls closed, if that is not nil. An
// operation with a known member costs one more comparison.
func (j *Joiner) Join(spec pml.CommSpec, sides *Sides, node, network pml.Comm, watchable pml.Watchable, closed func()) pml.Comm {
	return &comm{j: j, spec: spec, sides: sides, onNode: sides.OnNode, networkComm: network, nodeComm: node, watchableNode: watchable, onClose: closed}
}

// event reports an event to the hooks.
func (j *Joiner) event(ev pml.Event) {
	if j.pmlHooks != nil {
		j.pmlHooks.Event(ev)
	}
}

// Uses reports whether an incomplete receive of the joined Comms uses a part of the memory.
func (j *Joiner) Uses(memory []byte) bool {
	j.engine.Lock()
	defer j.engine.Release()
	return slices.ContainsFunc(j.allRequests, func(r *request) bool { return mem.Overlap(r.userBuf.Bytes, memory) })
}

// Inspect describes the messages and receives of the joined Comms. The engine's lock is held.
func (j *Joiner) Inspect() (all []pml.CommInspection) {
	for w := range j.watchingWildcards {
		all = append(all, w.inspect())
	}
	return all
}

// Merge adds more to all, combining descriptions of the same communicator.
func Merge(all, more []pml.CommInspection) []pml.CommInspection {
	for _, n := range more {
		i := indexOf(all, n)
		if i < 0 {
			all = append(all, n)
			continue
		}
		c := &all[i]
		c.Posted, c.Unexpected, c.Sends = append(c.Posted, n.Posted...), append(c.Unexpected, n.Unexpected...), append(c.Sends, n.Sends...)
	}
	return all
}

func indexOf(all []pml.CommInspection, x pml.CommInspection) int {
	for i, c := range all {
		if c.ID == x.ID && c.Endpoint == x.Endpoint {
			return i
		}
	}
	return -1
}
