package main

import (
	"context"

	"github.com/ferrympi/ferry/mpi"
)

// checkpoint is the state of a rank after some steps. It is valid once all members have agreed that each of
// them has it. Its cells do not change.
type checkpoint struct {
	atStep int
	// In seconds.
	waterTime float64
	ownBlock  block
	// Of the rows of other ranks.
	otherCopies []block
}

// blocks returns all blocks that have rows.
func (c *checkpoint) blocks() (all []block) {
	for _, b := range append([]block{c.ownBlock}, c.otherCopies...) {
		if len(b.cells) > 0 {
			all = append(all, b)
		}
	}
	return all
}

// row returns a row if a block has it.
func (c *checkpoint) row(grid, row int) []cell {
	for _, b := range c.blocks() {
		if i := (row - b.firstRow) * grid; i >= 0 && i < len(b.cells) {
			return b.cells[i : i+grid]
		}
	}
	return nil
}

// holders returns the ranks that store the block of a rank. These are the rank itself and the next rank that
// stays. The block of a rank that leaves is stored at the next two.
func holders(rank int, stays []bool) []int {
	ranks, copies := []int{rank}, 1
	if !stays[rank] {
		copies = 2
	}
	for k := 1; k < len(stays) && len(ranks) <= copies; k++ {
		if next := (rank + k) % len(stays); stays[next] {
			ranks = append(ranks, next)
		}
	}
	return ranks
}

// all returns that all ranks stay.
func (m *member) all() []bool {
	stays := make([]bool, m.comm.Size())
	for rank := range stays {
		stays[rank] = true
	}
	return stays
}

// replicate returns the state with copies of the blocks that this rank holds for others.
func (m *member) replicate(ctx context.Context, state checkpoint, stays []bool) (checkpoint, error) {
	m.disturbAt(ctx, pointReplicate)
	state.otherCopies = nil
	var requests []mpi.Request
	for owner := range stays {
		first, rows := share(m.gridSize, owner, len(stays))
		if rows == 0 {
			continue
		}
		for _, holder := range holders(owner, stays)[1:] {
			var request mpi.Request
			var err error
			switch m.comm.Rank() {
			case owner:
				request, err = mpi.Isend(m.comm, state.ownBlock.cells, holder, tagCopy)
			case holder:
				replica := block{first, make([]cell, rows*m.gridSize)}
				state.otherCopies = append(state.otherCopies, replica)
				request, err = mpi.Irecv(m.comm, replica.cells, owner, tagCopy)
			default:
				continue
			}
			if err != nil {
				return checkpoint{}, err
			}
			requests = append(requests, request)
		}
	}
	return state, mpi.WaitAll(ctx, requests, nil)
}
