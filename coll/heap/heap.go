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

	mu      sync.Mutex
	last    uint32 // The last number that was given out.
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

// Seat returns the node as the member with that rank uses it. It has the ability coll.Heap.
func (n *Node) Seat(rank int) coll.Node { return &seat{n, rank} }

// Len returns the number of areas and values that may still be opened.
func (n *Node) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.entries)
}

type seat struct {
	*Node
	rank int
}

// NewArea implements coll.Node. The area may be opened until it is hidden or closed.
func (s *seat) NewArea(size int) (*btl.Area, error) {
	b := ring.Aligned(size)
	number, hide := s.Share(b)
	return &btl.Area{Number: number, Bytes: b, Hide: hide, Close: hide}, nil
}

// OpenArea implements coll.Node.
func (s *seat) OpenArea(rank int, number uint32, size int) (*btl.Area, error) {
	v, err := s.Shared(rank, number)
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
func (s *seat) Bell(rank int) (progress.RemoteBell, func(), error) {
	if err := s.check(rank); err != nil {
		return progress.RemoteBell{}, nil, err
	}
	return s.bell(rank), func() {}, nil
}

// Share implements coll.Heap.
func (s *seat) Share(value any) (number uint32, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	e := entry{s.rank, s.last}
	s.entries[e] = value
	return e.number, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.entries, e)
	}
}

// Shared implements coll.Heap.
func (s *seat) Shared(rank int, number uint32) (any, error) {
	if err := s.check(rank); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.entries[entry{rank, number}]
	if !ok {
		return nil, fmt.Errorf("rank %d shares nothing under number %d", rank, number)
	}
	return v, nil
}

func (s *seat) check(rank int) error {
	if _, ok := slices.BinarySearch(s.ranks, rank); !ok {
		return fmt.Errorf("rank %d is in another process than rank %d", rank, s.rank)
	}
	return nil
}
