package compose

import (
	"weak"

	"github.com/ferrympi/ferry/pml"
)

// split has the PML of each member, by rank. The handles that a process has of communicators with equal members share
// one, unless a card has come between their creations.
type split struct {
	key splitKey
	Sides
	// onNode counts members of other processes on the node, and inNetwork members on other nodes.
	onNode    int
	inNetwork int
	// notInNetwork is CommSpec.Elsewhere of the network's Comm.
	notInNetwork *pml.RankSet

	// incarnationChanges is Module.incarnationChanges at its creation.
	incarnationChanges uint64
	// handleCount counts the communicators of this process that use it.
	handleCount int
}

// splitKey identifies communicators that share a split.
type splitKey struct {
	members   pml.Members
	elsewhere *pml.RankSet
}

// split returns the split of a communicator, and counts a handle.
func (m *Module) split(spec *pml.CommSpec) *split {
	key := splitKey{spec.Members, spec.Elsewhere}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.splitsByKey[key]
	if last := m.lastSplit.Value(); s == nil && last != nil && last.key == key {
		s = last
	}
	if s == nil || s.incarnationChanges != m.incarnationChanges {
		s = m.newSplit(key, spec)
	}
	m.splitsByKey[key], m.lastSplit = s, weak.Make(s)
	s.handleCount++
	return s
}

// newSplit creates a split. Messages of this process to itself use the node's PML if other members are on the node. mu
// is held.
func (m *Module) newSplit(key splitKey, spec *pml.CommSpec) *split {
	n := spec.Members.Len()
	s := &split{key: key, incarnationChanges: m.incarnationChanges, Sides: Sides{OnNode: pml.NewRankSet(n), IsWhole: true}}
	if spec.Elsewhere == nil {
		s.NotOnNode, s.notInNetwork = s.OnNode.Complement(), s.OnNode
	} else {
		s.NotOnNode, s.notInNetwork = pml.NewRankSet(n), pml.NewRankSet(n)
	}
	for rank := range n {
		member, other := spec.Members.Member(rank), spec.IsElsewhere(rank)
		self := member.Incarnation == m.env.Self
		s.IsWhole = s.IsWhole && member.Endpoint == 0
		isOnNode := self || m.isOnNode(member.Incarnation)
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

// releaseSplit removes a handle from a split. A communicator of one PML alone releases its split at once. Further
// handles of that communicator find the last split until the garbage collector frees it.
func (m *Module) releaseSplit(s *split) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.handleCount--; s.handleCount == 0 && m.splitsByKey[s.key] == s {
		delete(m.splitsByKey, s.key)
	}
}
