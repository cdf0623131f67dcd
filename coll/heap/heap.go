// Package heap is a coll.Node on the heap: the goroutines of one process that are ranks of a
// communicator share areas and Go values.
//
// It stands on package coll. It knows neither engines nor transports: the caller provides the
// bells. The race detector sees all accesses to the areas.
package heap

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

// Node is shared by the ranks of one process in one communicator.
type Node struct {
	ranks []int
	bell  func(rank int) progress.RemoteBell

	mu sync.Mutex
	// The last number that was given out.
	last    uint32
	entries map[entry]any
}

// entry identifies what a member has shared.
type entry struct {
	rank   int
	number uint32
}

// New returns a node of the ranks, which ascend and stay as they are. bell returns the bell of
// one of them (progress.Engine.RankBell).
func New(ranks []int, bell func(rank int) progress.RemoteBell) *Node {
	return &Node{ranks: ranks, bell: bell, entries: map[entry]any{}}
}

// NodeOf returns the node from the view of the member with that rank. It has the ability coll.Heap.
func (n *Node) NodeOf(rank int) coll.Node { return &memberNode{n, rank} }

// Len returns the number of areas and values that may still be opened.
func (n *Node) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.entries)
}

type memberNode struct {
	*Node
	rank int
}

// NewArea implements coll.Node. The area may be opened until it is hidden or closed.
func (m *memberNode) NewArea(size int) (*btl.Area, error) {
	b := ring.Aligned(size)
	number, hide := m.Share(b)
	return &btl.Area{Number: number, Bytes: b, Hide: hide, Close: hide}, nil
}

// OpenArea implements coll.Node.
func (m *memberNode) OpenArea(rank int, number uint32, size int) (*btl.Area, error) {
	v, err := m.Shared(rank, number)
	if err != nil {
		return nil, err
	}
	b, ok := v.([]byte)
	if !ok || len(b) != size {
		return nil, fmt.Errorf("rank %d has no area %d of %d bytes: members must pass equal parameters", rank, number, size)
	}
	return &btl.Area{Number: number, Bytes: b, Hide: func() {}, Close: func() {}}, nil
}

// Bell implements coll.Node. A member may ask for its own bell.
func (m *memberNode) Bell(rank int) (progress.RemoteBell, func(), error) {
	if err := m.check(rank); err != nil {
		return progress.RemoteBell{}, nil, err
	}
	return m.bell(rank), func() {}, nil
}

// Share implements coll.Heap.
func (m *memberNode) Share(value any) (number uint32, release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	e := entry{m.rank, m.last}
	m.entries[e] = value
	return e.number, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.entries, e)
	}
}

// Shared implements coll.Heap.
func (m *memberNode) Shared(rank int, number uint32) (any, error) {
	if err := m.check(rank); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.entries[entry{rank, number}]
	if !ok {
		return nil, fmt.Errorf("rank %d shares nothing under number %d", rank, number)
	}
	return v, nil
}

func (m *memberNode) check(rank int) error {
	if _, ok := slices.BinarySearch(m.ranks, rank); !ok {
		return fmt.Errorf("rank %d is in another process than rank %d", rank, m.rank)
	}
	return nil
}
