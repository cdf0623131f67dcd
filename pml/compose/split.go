package compose

import (
	"weak"

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
	notInNetwork *pml.RankSet

	changes uint64 // Module.changes at its creation.
	handles int    // Communicators of this process that use it.
}

// splitKey identifies communicators that share a split.
type splitKey struct {
	members   pml.Members
	elsewhere *pml.RankSet // CommSpec.Elsewhere.
}

// split returns that of a communicator, with one handle more.
func (m *Module) split(spec *pml.CommSpec) *split {
	key := splitKey{spec.Members, spec.Elsewhere}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.splits[key]
	if last := m.lastSplit.Value(); s == nil && last != nil && last.key == key {
		s = last
	}
	if s == nil || s.changes != m.changes {
		s = m.newSplit(key, spec)
	}
	m.splits[key], m.lastSplit = s, weak.Make(s)
	s.handles++
	return s
}

// newSplit looks where the members are. Messages of this process to itself are the node's
// PML's if that has other members too. mu held.
func (m *Module) newSplit(key splitKey, spec *pml.CommSpec) *split {
	n := spec.Members.Len()
	s := &split{key: key, changes: m.changes, Sides: Sides{OnNode: pml.NewRankSet(n), IsWhole: true}}
	if spec.Elsewhere == nil {
		s.NotOnNode, s.notInNetwork = s.OnNode.Complement(), s.OnNode
	} else {
		s.NotOnNode, s.notInNetwork = pml.NewRankSet(n), pml.NewRankSet(n)
	}
	for rank := range n {
		member, other := spec.Members.Member(rank), spec.IsElsewhere(rank)
		self := member.Life == m.env.Self
		s.IsWhole = s.IsWhole && member.Endpoint == 0
		isOnNode := self || m.isOnNode(member.Life)
		if isOnNode {
			s.OnNode.Add(rank)
		}
		if spec.Elsewhere != nil {
			addIf(s.NotOnNode, rank, other || !isOnNode)
			addIf(s.notInNetwork, rank, other || isOnNode)
		}
		switch {
		case self:
		case isOnNode:
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

func addIf(s *pml.RankSet, rank int, condition bool) {
	if condition {
		s.Add(rank)
	}
}

// drop takes a handle off a split. A communicator that one of the two PMLs has alone drops its
// split at once. Further handles of that communicator find the last split until the garbage collector frees it.
func (m *Module) drop(s *split) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.handles--; s.handles == 0 && m.splits[s.key] == s {
		delete(m.splits, s.key)
	}
}
