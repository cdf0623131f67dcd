package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/ferrympi/ferry/mpi"
)

// maxDrift is the largest relative error of the mass. Each step conserves the mass but for rounding.
const maxDrift = 1e-12

// result is the end of the computation in rank 0.
type result struct {
	// Of the bits of all cells.
	checksum uint64
	// Relative change.
	massDrift float64
	stepCount int
	// In seconds.
	waterTime     float64
	changeCount   int
	recoveryCount int
	finalRanks    int // At the end.
}

func (r *result) String() string {
	return fmt.Sprintf("ok: checksum %016x, mass drift %.1e, %d steps for %.1f s of waves; %d changes, %d recoveries, %d ranks at the end",
		r.checksum, r.massDrift, r.stepCount, r.waterTime, r.changeCount, r.recoveryCount, r.finalRanks)
}

// check returns an error if the mass has changed by more than rounding.
func (r *result) check() error {
	if !(math.Abs(r.massDrift) <= maxDrift) {
		return fmt.Errorf("the mass has changed by %.1e, want at most %.0e", r.massDrift, maxDrift)
	}
	return nil
}

// sum returns the result. Masses of rows are added up by rank 0 in the order of the rows, and the sum of the hashes of rows is the same in
// any order.
func (m *member) sum(ctx context.Context) (*result, error) {
	masses, hash := rowMasses(m.savedState.ownBlock.cells, m.gridSize), hashRows(m.savedState.ownBlock, m.gridSize)
	size := m.comm.Size()
	counts := make([]int, size)
	for rank := range size {
		_, counts[rank] = share(m.gridSize, rank, size)
	}
	all, checksum := make([]float64, m.gridSize), make([]uint64, 1)
	if err := mpi.Gatherv(ctx, m.comm, masses, all, counts, offsets(counts), 0); err != nil {
		return nil, err
	}
	if err := mpi.Reduce(ctx, m.comm, []uint64{hash}, checksum, mpi.Sum[uint64](), 0); err != nil {
		return nil, err
	}
	if m.comm.Rank() != 0 {
		return &result{}, nil
	}
	before := total(rowMasses(newBlock(m.gridSize, 0, m.gridSize).cells, m.gridSize))
	return &result{checksum[0], (total(all) - before) / before, m.savedState.atStep, m.savedState.waterTime, m.changeCount, m.recoveryCount, size}, nil
}

// rowMasses returns the sum of the depths of each row.
func rowMasses(cells []cell, grid int) []float64 {
	masses := make([]float64, len(cells)/grid)
	for i, c := range cells {
		masses[i/grid] += c.h
	}
	return masses
}

// total adds up numbers in their order.
func total(numbers []float64) (sum float64) {
	for _, x := range numbers {
		sum += x
	}
	return sum
}

// hashRows returns the sum of the hashes of the rows of a block, with their positions.
func hashRows(b block, grid int) (sum uint64) {
	for i := range len(b.cells) / grid {
		hash := fnv.New64a()
		text := binary.LittleEndian.AppendUint64(nil, uint64(b.firstRow+i))
		for _, x := range floats(b.cells[i*grid : (i+1)*grid]) {
			text = binary.LittleEndian.AppendUint64(text, math.Float64bits(x))
		}
		hash.Write(text)
		sum += hash.Sum64()
	}
	return sum
}
