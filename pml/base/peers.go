package base

import (
	"iter"
	"maps"
	"slices"
)

// Peers are the states that a handle of a communicator has of other members, made at the
// first use. Where each process has one rank, or there are few ranks, they are in a slice, and
// Get costs one load. Otherwise a process has as many handles as ranks, and slices would take
// memory quadratic in their number. A map takes memory for the members that exchange messages.
type Peers[T any] struct {
	byRank []*T
	used   map[int]*T
}

// mostSliced is the number of members up to which a slice is small.
const mostSliced = 256

// NewPeers returns the empty states of a communicator with n members. whole is set if each
// process has one rank.
func NewPeers[T any](n int, whole bool) Peers[T] {
	if whole || n <= mostSliced {
		return Peers[T]{byRank: make([]*T, n)}
	}
	return Peers[T]{used: map[int]*T{}}
}

// Get returns the state of a rank, nil if there is none.
func (p *Peers[T]) Get(rank int) *T {
	if all := p.byRank; uint(rank) < uint(len(all)) { // the copy saves a second comparison
		return all[rank]
	}
	return p.used[rank]
}

// Set stores the state of a rank, which is in range.
func (p *Peers[T]) Set(rank int, state *T) {
	if p.byRank != nil {
		p.byRank[rank] = state
	} else {
		p.used[rank] = state
	}
}

// All returns ranks with their states, ascending.
func (p *Peers[T]) All() iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for rank, state := range p.byRank {
			if state != nil && !yield(rank, state) {
				return
			}
		}
		if p.used == nil {
			return
		}
		for _, rank := range slices.Sorted(maps.Keys(p.used)) {
			if !yield(rank, p.used[rank]) {
				return
			}
		}
	}
}
