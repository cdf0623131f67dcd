package compose

import (
	"github.com/ferrympi/ferry/pml"
)

// split says which of the two PMLs has the messages of each member, by rank. The handles that
// a process has of communicators with equal members share one, unless a card has come between
// their creations.
type split struct {
	key splitKey
	Sides
	onNode    int // Number of members of other processes on the node.
	inNetwork int // Number of members on other nodes.
	// notInNetwork is CommSpec.Elsewhere of the network's Comm.
	notInNetwork []bool

	changes uint64 // Module.changes at its creation.
	handles int    // Communicators of this process that use it.
}

// splitKey identifies communicators that share a split.
type splitKey struct {
	members   pml.Members
	elsewhere *bool // First element of CommSpec.Elsewhere.
}

// split returns that of a communicator, with one handle more.
func (m *Module) split(spec *pml.CommSpec) *split {
	key := splitKey{members: spec.Members}
	if len(spec.Elsewhere) > 0 {
		key.elsewhere = &spec.Elsewhere[0]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.splits[key]
	if s == nil && m.lastSplit != nil && m.lastSplit.key == key {
		s = m.lastSplit
	}
	if s == nil || s.changes != m.changes {
		s = m.newSplit(key, spec)
	}
	m.splits[key], m.lastSplit = s, s
	s.handles++
	return s
}

// newSplit looks where the members are. Messages of this process to itself are the node's
// PML's if that has other members too. mu held.
func (m *Module) newSplit(key splitKey, spec *pml.CommSpec) *split {
	n := spec.Members.Len()
	s := &split{key: key, changes: m.changes, Sides: Sides{OnNode: make([]bool, n), NotOnNode: make([]bool, n), IsWhole: true}, notInNetwork: make([]bool, n)}
	for rank := range n {
		member, other := spec.Members.Member(rank), spec.IsElsewhere(rank)
		self := member.Life == m.env.Self
		s.IsWhole = s.IsWhole && member.Endpoint == 0
		s.OnNode[rank] = self || m.isOnNode(member.Life)
		s.NotOnNode[rank], s.notInNetwork[rank] = other || !s.OnNode[rank], other || s.OnNode[rank]
		switch {
		case self:
		case s.OnNode[rank]:
			s.onNode++
		default:
			s.inNetwork++
		}
	}
	if n == 1 {
		s.onNode = 1
	}
	return s
}

// drop takes a handle off a split. A communicator that one of the two PMLs has alone drops its
// split at once. The last split stays, for further handles of that communicator.
func (m *Module) drop(s *split) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.handles--; s.handles == 0 && m.splits[s.key] == s {
		delete(m.splits, s.key)
	}
}
