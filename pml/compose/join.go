package compose

import (
	"slices"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Joiner makes one Comm of two that share the members of a communicator. All calls come under
// the lock of one engine, in which requests of the joined Comms complete. The joins of a
// Joiner share their requests.
type Joiner struct {
	engine *progress.Engine
	hooks  pml.Hooks

	// Guarded by the engine's lock.
	requests []*request // all there are
	free     *request
	watching map[*wildcards]struct{}
	isClosed bool // No plane is given back to its Comm anymore.
}

// NewJoiner returns a Joiner of the process's engine, or of the engine of a goroutine rank. hooks, which may
// be nil, are called under that engine's lock.
func NewJoiner(e *progress.Engine, hooks pml.Hooks) *Joiner {
	return &Joiner{engine: e, hooks: hooks, watching: map[*wildcards]struct{}{}}
}

// Sides reports which of two Comms has the messages of each member, by rank. It is read-only, and
// may be shared.
type Sides struct {
	OnNode *pml.RankSet // Members of the node's Comm.
	// NotOnNode is CommSpec.Elsewhere of that Comm, if neither has the messages of some members.
	// If it is nil, the complement of OnNode.
	NotOnNode *pml.RankSet
	IsWhole   bool // Each process has one rank.
}

// isOnNode reports whether the node's Comm has the messages of a member.
func (s *Sides) isOnNode(rank int) bool {
	if s.NotOnNode == nil {
		return s.OnNode.Has(rank)
	}
	return !s.NotOnNode.Has(rank)
}

// Join returns the Comm of two. The node's is Watchable. The network's is called under the lock of the
// Joiner's engine (for a goroutine rank see base.Deferring). Both are closed with the result, which then
// calls closed if that is not nil. A known member costs one comparison.
func (j *Joiner) Join(spec pml.CommSpec, sides *Sides, node, network pml.Comm, watchable pml.Watchable, closed func()) pml.Comm {
	return &comm{j: j, spec: spec, sides: sides, onNode: sides.OnNode, network: network, node: node, watchable: watchable, onClose: closed}
}

// event reports an event to the hooks.
func (j *Joiner) event(ev pml.Event) {
	if j.hooks != nil {
		j.hooks.Event(ev)
	}
}

// Uses reports whether a receive that is not complete, and that only the joins may have, uses a part of the memory.
func (j *Joiner) Uses(memory []byte) bool {
	j.engine.Lock()
	defer j.engine.Release()
	return slices.ContainsFunc(j.requests, func(r *request) bool { return mem.Overlap(r.buf.Bytes, memory) })
}

// Inspect describes the messages and receives that only the joins have. The engine's lock is held.
func (j *Joiner) Inspect() (all []pml.CommInspection) {
	for w := range j.watching {
		all = append(all, w.inspect())
	}
	return all
}

// Merge adds descriptions of the same communicators to those of all.
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
