package main

// The plate is a square of cells inside a frame. The frame has temperature 1 above the first row,
// and 0 elsewhere. Each step replaces every cell by the mean of its four neighbors.

// top is the temperature of the frame above the first row.
const top = 1

// block is a range of consecutive rows. A row has the frame's cell at each end.
type block struct {
	firstRow, rowCount int
	cells              []float64
}

// width is the number of cells of a row, with those of the frame.
func width(grid int) int { return grid + 2 }

// newBlock returns rows of the plate before the first step.
func newBlock(grid, first, rows int) block {
	return block{firstRow: first, rowCount: rows, cells: make([]float64, rows*width(grid))}
}

// share returns the rows of a rank.
func share(grid, rank, ranks int) (first, rows int) {
	first = rank * grid / ranks
	return first, (rank+1)*grid/ranks - first
}

// frame returns the rows above and below a block at the edges of the plate.
func frame(grid int) (above, below []float64) {
	above, below = make([]float64, width(grid)), make([]float64, width(grid))
	for i := 1; i <= grid; i++ {
		above[i] = top
	}
	return above, below
}

// sweep computes a step of rows of w cells. above and below are the rows next to them.
func sweep(next, now, above, below []float64, w int) {
	rows := len(now) / w
	for r := range rows {
		up, down := above, below
		if r > 0 {
			up = now[(r-1)*w : r*w]
		}
		if r < rows-1 {
			down = now[(r+1)*w : (r+2)*w]
		}
		row := now[r*w : (r+1)*w]
		for i := 1; i < w-1; i++ {
			next[r*w+i] = (up[i] + down[i] + row[i-1] + row[i+1]) / 4
		}
	}
}

// uninterrupted returns the plate after all steps, computed by one rank.
func uninterrupted(grid, steps int) []float64 {
	now, next := newBlock(grid, 0, grid).cells, newBlock(grid, 0, grid).cells
	above, below := frame(grid)
	for range steps {
		sweep(next, now, above, below, width(grid))
		now, next = next, now
	}
	return now
}
