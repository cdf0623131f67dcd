package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// errLost is the end of a computation that cannot be restored. All members return it.
var errLost = errors.New("a rank and the holder of its copy have died")

// holding is the state of one member before a restoration. Added processes have no blocks.
type holding struct {
	savedStep     int64
	waterTime     float64
	blockCount    int64
	changeCount   int64
	recoveryCount int64
}

// extent is the position of a block.
type extent struct{ first, rows int64 }

// restore divides the rows of the last checkpoint among all members. Each row comes from the first member that has
// it, or from the member itself.
func (m *member) restore(ctx context.Context) (checkpoint, error) {
	m.disturbAt(ctx, pointRestore)
	latest, sources, err := m.findRows(ctx)
	if err != nil {
		return checkpoint{}, err
	}
	size, rank := m.comm.Size(), m.comm.Rank()
	var send []cell
	sendCounts, recvCounts := make([]int, size), make([]int, size)
	first, rows := share(m.gridSize, rank, size)
	for to := range size {
		begin, n := share(m.gridSize, to, size)
		for row := begin; row < begin+n; row++ {
			if source(sources[row], to) != rank {
				continue
			}
			send = append(send, m.savedState.row(m.gridSize, row)...)
			sendCounts[to] += m.gridSize
		}
	}
	for row := first; row < first+rows; row++ {
		recvCounts[source(sources[row], rank)] += m.gridSize
	}
	// Blocks of the ranks arrive one after another, and each has its rows in order.
	received := make([]cell, rows*m.gridSize)
	sendDispls, recvDispls := offsets(sendCounts), offsets(recvCounts)
	if err := mpi.Alltoallv(ctx, m.comm, send, sendCounts, sendDispls, received, recvCounts, recvDispls); err != nil {
		return checkpoint{}, err
	}
	own := block{first, make([]cell, 0, rows*m.gridSize)}
	for row := first; row < first+rows; row++ {
		at := &recvDispls[source(sources[row], rank)]
		own.cells = append(own.cells, received[*at:*at+m.gridSize]...)
		*at += m.gridSize
	}
	m.changeCount, m.recoveryCount = int(latest.changeCount), int(latest.recoveryCount)
	return m.replicate(ctx, checkpoint{atStep: int(latest.savedStep), waterTime: latest.waterTime, ownBlock: own}, m.all())
}

// source returns the rank that sends a row to another one.
func source(holders []int, to int) int {
	if slices.Contains(holders, to) {
		return to
	}
	return holders[0]
}

// findRows returns the state of the last checkpoint, and the members that have each row. It returns errLost if a row is
// missing.
func (m *member) findRows(ctx context.Context) (latest holding, sources [][]int, err error) {
	blocks := m.savedState.blocks()
	mine := holding{int64(m.savedState.atStep), m.savedState.waterTime, int64(len(blocks)), int64(m.changeCount), int64(m.recoveryCount)}
	all := make([]holding, m.comm.Size())
	if err := mpi.Allgather(ctx, m.comm, []holding{mine}, all); err != nil {
		return latest, nil, err
	}
	counts, total := make([]int, len(all)), 0
	for rank, h := range all {
		counts[rank] = int(h.blockCount)
		total += counts[rank]
		latest.savedStep, latest.waterTime = max(latest.savedStep, h.savedStep), max(latest.waterTime, h.waterTime)
		latest.changeCount, latest.recoveryCount = max(latest.changeCount, h.changeCount), max(latest.recoveryCount, h.recoveryCount)
	}
	extents := make([]extent, 0, len(blocks))
	for _, b := range blocks {
		extents = append(extents, extent{int64(b.firstRow), int64(len(b.cells) / m.gridSize)})
	}
	list := make([]extent, total)
	if err := mpi.Allgatherv(ctx, m.comm, extents, list, counts, offsets(counts)); err != nil {
		return latest, nil, err
	}
	sources = make([][]int, m.gridSize)
	for rank, n := range counts {
		for _, e := range list[:n] {
			for row := e.first; row < e.first+e.rows; row++ {
				sources[row] = append(sources[row], rank)
			}
		}
		list = list[n:]
	}
	return latest, sources, checkRows(sources, latest.savedStep)
}

// checkRows returns errLost if a row has no source.
func checkRows(sources [][]int, step int64) error {
	isLost := func(ranks []int) bool { return len(ranks) == 0 }
	first := slices.IndexFunc(sources, isLost)
	if first < 0 {
		return nil
	}
	last := first
	for last+1 < len(sources) && isLost(sources[last+1]) {
		last++
	}
	return fmt.Errorf("rows %d to %d of step %d are lost: %w: start the job again", first, last, step, errLost)
}

// offsets returns the positions of blocks that follow one another.
func offsets(counts []int) []int {
	positions, next := make([]int, len(counts)), 0
	for i, n := range counts {
		positions[i] = next
		next += n
	}
	return positions
}
