package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// Tags of messages.
const (
	tagDown = iota
	tagUp
	tagCopy
)

// field is the block of a rank during its steps. Row 0 and the last row are those of the neighbors, or those behind the
// walls.
type field struct {
	// Without those of the neighbors.
	ownRowCount             int
	currentCells, nextCells []cell
	// mpi.ProcNull beyond a wall.
	aboveRank, belowRank int
}

func newField(b block, grid, rank, ranks int) *field {
	f := &field{ownRowCount: len(b.cells) / grid, aboveRank: mpi.ProcNull, belowRank: mpi.ProcNull}
	f.currentCells, f.nextCells = make([]cell, (f.ownRowCount+2)*grid), make([]cell, (f.ownRowCount+2)*grid)
	copy(f.currentCells[grid:], b.cells)
	if rank > 0 {
		f.aboveRank = rank - 1
	}
	if rank+1 < min(ranks, grid) {
		f.belowRank = rank + 1
	}
	return f
}

// advance computes the steps to the next checkpoint. The block of the result is the only reference to its
// cells.
func (m *member) advance(ctx context.Context) (checkpoint, error) {
	saved := &m.savedState
	f := newField(saved.ownBlock, m.gridSize, m.comm.Rank(), m.comm.Size())
	waves := []float64{maxSpeed(saved.ownBlock.cells)}
	step, time := saved.atStep, saved.waterTime
	for ; step < min(saved.atStep+m.checkpointInterval, m.stepCount); step++ {
		m.disturbAt(ctx, pointStep)
		if err := mpi.Allreduce(ctx, m.comm, nil, waves, mpi.Max[float64]()); err != nil {
			return checkpoint{}, err
		}
		if math.IsNaN(waves[0]) || math.IsInf(waves[0], 0) {
			return checkpoint{}, fmt.Errorf("step %d: the largest wave speed is %v: the scheme is unstable", step, waves[0])
		}
		time += float64(courant * m.cellSize() / waves[0])
		var err error
		if waves[0], err = m.step(ctx, f, waves[0]); err != nil {
			return checkpoint{}, err
		}
	}
	own := block{saved.ownBlock.firstRow, slices.Clone(f.currentCells[m.gridSize : (f.ownRowCount+1)*m.gridSize])}
	return m.replicate(ctx, checkpoint{atStep: step, waterTime: time, ownBlock: own}, m.all())
}

// step computes a step, the inner rows while the rows of the neighbors are on their way. It returns the largest wave
// speed of the new rows.
func (m *member) step(ctx context.Context, f *field, waves float64) (speed float64, err error) {
	if f.ownRowCount == 0 {
		return 0, nil
	}
	requests, err := m.exchange(f)
	if err != nil {
		return 0, err
	}
	speed = m.sweep(f.nextCells, f.currentCells, 2, f.ownRowCount-1, waves)
	if err := mpi.WaitAll(ctx, requests, nil); err != nil {
		return 0, err
	}
	w, last := m.gridSize, f.ownRowCount
	if f.aboveRank == mpi.ProcNull {
		mirrorColumns(f.currentCells[:w], f.currentCells[w:2*w])
	}
	if f.belowRank == mpi.ProcNull {
		mirrorColumns(f.currentCells[(last+1)*w:], f.currentCells[last*w:(last+1)*w])
	}
	speed = max(speed, m.sweep(f.nextCells, f.currentCells, 1, 1, waves))
	if last > 1 {
		speed = max(speed, m.sweep(f.nextCells, f.currentCells, last, last, waves))
	}
	f.currentCells, f.nextCells = f.nextCells, f.currentCells
	return speed, nil
}

// exchange starts the exchange of rows with the neighbors.
func (m *member) exchange(f *field) ([]mpi.Request, error) {
	row := func(i int) []cell { return f.currentCells[i*m.gridSize : (i+1)*m.gridSize] }
	var requests []mpi.Request
	for _, start := range []func() (mpi.Request, error){
		func() (mpi.Request, error) { return mpi.Irecv(m.comm, row(0), f.aboveRank, tagDown) },
		func() (mpi.Request, error) { return mpi.Irecv(m.comm, row(f.ownRowCount+1), f.belowRank, tagUp) },
		func() (mpi.Request, error) { return mpi.Isend(m.comm, row(1), f.aboveRank, tagUp) },
		func() (mpi.Request, error) { return mpi.Isend(m.comm, row(f.ownRowCount), f.belowRank, tagDown) },
	} {
		request, err := start()
		if err != nil {
			return nil, err
		}
		requests = append(requests, request)
	}
	return requests, nil
}
