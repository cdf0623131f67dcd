package mpi

import (
	"fmt"
	"math"
	"slices"
)

// grid is the geometry of a Cartesian topology. Ranks are in row-major order, so that the last coordinate changes fastest
// (MPI-4.1 section 8.2). It is immutable.
type grid struct {
	dims       []int
	isPeriodic []bool
	size       int // Product of dims.
}

// newGrid checks dimensions, and copies them. No periods means that no dimension is periodic.
func newGrid(dims []int, periods []bool) (*grid, error) {
	if periods == nil {
		periods = make([]bool, len(dims))
	}
	if len(periods) != len(dims) {
		return nil, fmt.Errorf("%w: %d periods for %d dimensions; pass one for each dimension, or nil", ErrTopology, len(periods), len(dims))
	}
	size := 1
	for _, d := range dims {
		if d < 1 || d > math.MaxInt32/size {
			return nil, fmt.Errorf("%w: dimensions %v; each must be positive, and their product a number of processes", ErrTopology, dims)
		}
		size *= d
	}
	return &grid{slices.Clone(dims), slices.Clone(periods), size}, nil
}

// coords returns the coordinates of a rank.
func (g *grid) coords(rank int) []int {
	coords := make([]int, len(g.dims))
	for i := len(g.dims) - 1; i >= 0; i-- {
		coords[i] = rank % g.dims[i]
		rank /= g.dims[i]
	}
	return coords
}

// rank returns the rank at coordinates, or -1 for coordinates outside the grid. Those of periodic dimensions wrap around.
func (g *grid) rank(coords []int) int {
	rank := 0
	for i, x := range coords {
		d := g.dims[i]
		if g.isPeriodic[i] {
			x = wrap(x, d)
		}
		if x < 0 || x >= d {
			return -1
		}
		rank = rank*d + x
	}
	return rank
}

// wrap returns x modulo d, from 0 to d-1.
func wrap(x, d int) int {
	if x %= d; x < 0 {
		x += d
	}
	return x
}

// shift returns the ranks at a displacement before and behind a rank along a dimension. ProcNull stands for one
// outside the grid.
func (g *grid) shift(rank, dim, displacement int) (source, destination int) {
	d := g.dims[dim]
	if g.isPeriodic[dim] {
		displacement %= d
	}
	displacement = max(-d, min(displacement, d)) // No sum overflows.
	coords := g.coords(rank)
	at := func(x int) int {
		moved := slices.Clone(coords)
		moved[dim] = x
		if r := g.rank(moved); r >= 0 {
			return r
		}
		return ProcNull
	}
	return at(coords[dim] - displacement), at(coords[dim] + displacement)
}

// neighbors returns the neighbors of a rank. Each dimension has the one before, then the one behind (MPI-4.1
// section 8.6). ProcNull stands for one outside the grid.
func (g *grid) neighbors(rank int) []int {
	ranks := make([]int, 0, 2*len(g.dims))
	for dim := range g.dims {
		before, behind := g.shift(rank, dim, 1)
		ranks = append(ranks, before, behind)
	}
	return ranks
}

// sub returns the grid of the dimensions that remain, with the position of a rank among the grids of its kind, and
// its rank there.
func (g *grid) sub(remain []bool, rank int) (part *grid, position, inPart int) {
	part = &grid{size: 1}
	for i, x := range g.coords(rank) {
		d := g.dims[i]
		if remain[i] {
			part.dims, part.isPeriodic = append(part.dims, d), append(part.isPeriodic, g.isPeriodic[i])
			part.size *= d
			inPart = inPart*d + x
		} else {
			position = position*d + x
		}
	}
	return part, position, inPart
}
