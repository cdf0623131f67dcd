package main

// Geometry of the basin and of the water at rest, in meters.
const (
	basinLength = 1000.0
	depth       = 10.0
	// Of the column above the depth.
	columnHeight = 2.0
	columnRadius = 200.0
	columnX      = 350.0
	columnY      = 400.0
)

// cell is the mean state of the water in a cell. hu and hv are the depth times the velocity along the row and down the
// column.
type cell struct {
	h      float64 // Depth.
	hu, hv float64
}

// block is a range of consecutive rows.
type block struct {
	firstRow int
	cells    []cell
}

// share returns the rows of a rank. Ranks beyond the number of rows have none.
func share(grid, rank, ranks int) (first, rows int) {
	active := min(ranks, grid)
	if rank >= active {
		return grid, 0
	}
	first = rank * grid / active
	return first, (rank+1)*grid/active - first
}

// newBlock returns rows of water at time 0.
func newBlock(grid, first, rows int) block {
	b := block{first, make([]cell, rows*grid)}
	for i := range b.cells {
		b.cells[i].h = initialDepth(grid, first+i/grid, i%grid)
	}
	return b
}

// initialDepth returns the depth of a cell at time 0. It calls no function of the mathematical library, because their results
// differ between architectures.
func initialDepth(grid, row, column int) float64 {
	size := basinLength / float64(grid)
	x := float64((float64(column)+0.5)*size) - columnX
	y := float64((float64(row)+0.5)*size) - columnY
	r := (float64(x*x) + float64(y*y)) / (columnRadius * columnRadius)
	if r >= 1 {
		return depth
	}
	return depth + float64(float64(columnHeight*(1-r))*(1-r))
}
