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
	// Without these two.
	rows      int
	now, next []cell
	// Neighbors; mpi.ProcNull beyond a wall.
	above, below int
}

func newField(b block, grid, rank, ranks int) *field {
	f := &field{rows: len(b.cells) / grid, above: mpi.ProcNull, below: mpi.ProcNull}
	f.now, f.next = make([]cell, (f.rows+2)*grid), make([]cell, (f.rows+2)*grid)
	copy(f.now[grid:], b.cells)
	if rank > 0 {
		f.above = rank - 1
	}
	if rank+1 < min(ranks, grid) {
		f.below = rank + 1
	}
	return f
}

// advance computes the steps to the next checkpoint. The block of the result is the only reference to its
// cells.
func (m *member) advance(ctx context.Context) (checkpoint, error) {
	saved := &m.saved
	f := newField(saved.own, m.grid, m.comm.Rank(), m.comm.Size())
	waves := []float64{maxSpeed(saved.own.cells)}
	step, time := saved.step, saved.time
	for ; step < min(saved.step+m.every, m.steps); step++ {
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
	own := block{saved.own.first, slices.Clone(f.now[m.grid : (f.rows+1)*m.grid])}
	return m.replicate(ctx, checkpoint{step: step, time: time, own: own}, m.all())
}

// step computes a step, the inner rows while the rows of the neighbors are on their way. It returns the largest wave
// speed of the new rows.
func (m *member) step(ctx context.Context, f *field, waves float64) (speed float64, err error) {
	if f.rows == 0 {
		return 0, nil
	}
	requests, err := m.exchange(f)
	if err != nil {
		return 0, err
	}
	speed = m.sweep(f.next, f.now, 2, f.rows-1, waves)
	if err := mpi.WaitAll(ctx, requests, nil); err != nil {
		return 0, err
	}
	w, last := m.grid, f.rows
	if f.above == mpi.ProcNull {
		mirrorColumns(f.now[:w], f.now[w:2*w])
	}
	if f.below == mpi.ProcNull {
		mirrorColumns(f.now[(last+1)*w:], f.now[last*w:(last+1)*w])
	}
	speed = max(speed, m.sweep(f.next, f.now, 1, 1, waves))
	if last > 1 {
		speed = max(speed, m.sweep(f.next, f.now, last, last, waves))
	}
	f.now, f.next = f.next, f.now
	return speed, nil
}

// exchange starts the exchange of rows with the neighbors.
func (m *member) exchange(f *field) ([]mpi.Request, error) {
	row := func(i int) []cell { return f.now[i*m.grid : (i+1)*m.grid] }
	var requests []mpi.Request
	for _, start := range []func() (mpi.Request, error){
		func() (mpi.Request, error) { return mpi.Irecv(m.comm, row(0), f.above, tagDown) },
		func() (mpi.Request, error) { return mpi.Irecv(m.comm, row(f.rows+1), f.below, tagUp) },
		func() (mpi.Request, error) { return mpi.Isend(m.comm, row(1), f.above, tagUp) },
		func() (mpi.Request, error) { return mpi.Isend(m.comm, row(f.rows), f.below, tagDown) },
	} {
		request, err := start()
		if err != nil {
			return nil, err
		}
		requests = append(requests, request)
	}
	return requests, nil
}
