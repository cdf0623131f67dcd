package main

import "math"

// The conversions float64(x*y) are not redundant. They round the product, where Go may otherwise add it to the next term
// without rounding. On some architectures it does, and the result would depend on the architecture.

const (
	gravity = 9.81
	courant = 0.45 // Below 0.5, depths stay positive.
)

// basin computes steps of rows of the grid.
type basin struct {
	rowCells int
	// Above a row, in sweep.
	faceFluxes []cell
}

func newBasin(grid int) *basin { return &basin{rowCells: grid, faceFluxes: make([]cell, grid)} }

// cellSize returns the length of the edges of a cell.
func (b *basin) cellSize() float64 { return basinLength / float64(b.rowCells) }

// sweep computes the rows first to last of next from those of now, which has the rows before and after them as well. waves is the
// largest wave speed of the grid, which is that of the step. The result is the largest wave speed of the new rows.
func (b *basin) sweep(next, now []cell, first, last int, waves float64) (speed float64) {
	w := b.rowCells
	ratio := courant / waves // Length of the step by the size of a cell.
	row := func(cells []cell, i int) []cell { return cells[i*w : (i+1)*w] }
	for i := first; i <= last; i++ {
		above, here, below, out := row(now, i-1), row(now, i), row(now, i+1), row(next, i)
		if i == first {
			for j := range here {
				b.faceFluxes[j] = fluxDown(above[j], here[j], waves)
			}
		}
		left := fluxRight(mirrorRow(here[0]), here[0], waves)
		for j, c := range here {
			neighbor := mirrorRow(c)
			if j+1 < w {
				neighbor = here[j+1]
			}
			right, up, down := fluxRight(c, neighbor, waves), b.faceFluxes[j], fluxDown(c, below[j], waves)
			c.h -= float64(ratio * ((right.h - left.h) + (down.h - up.h)))
			c.hu -= float64(ratio * ((right.hu - left.hu) + (down.hu - up.hu)))
			c.hv -= float64(ratio * ((right.hv - left.hv) + (down.hv - up.hv)))
			out[j], b.faceFluxes[j], left = c, down, right
			speed = max(speed, c.speed())
		}
	}
	return speed
}

// fluxRight returns the flux through the face between two cells of a row.
func fluxRight(left, right cell, waves float64) cell {
	ul, ur := left.hu/left.h, right.hu/right.h
	return cell{
		h:  flux(left.hu, right.hu, left.h, right.h, waves),
		hu: flux(float64(left.hu*ul)+left.pressure(), float64(right.hu*ur)+right.pressure(), left.hu, right.hu, waves),
		hv: flux(float64(left.hv*ul), float64(right.hv*ur), left.hv, right.hv, waves),
	}
}

// fluxDown returns the flux through the face between a cell and the one below it.
func fluxDown(above, below cell, waves float64) cell {
	return fluxRight(above.turned(), below.turned(), waves).turned()
}

// flux returns the Lax-Friedrichs flux of a quantity, from its flux and its value on both sides.
func flux(fluxLeft, fluxRight, left, right, waves float64) float64 {
	return float64(0.5*(fluxLeft+fluxRight)) - float64(float64(0.5*waves)*(right-left))
}

// pressure returns the momentum flux of the water at rest.
func (c cell) pressure() float64 { return float64(float64(gravity/2*c.h) * c.h) }

// turned exchanges the two directions.
func (c cell) turned() cell { return cell{c.h, c.hv, c.hu} }

// mirrorRow returns the cell behind a wall at the end of a row.
func mirrorRow(c cell) cell { return cell{c.h, -c.hu, c.hv} }

// mirrorColumns sets the row behind a wall above or below the grid.
func mirrorColumns(mirrored, row []cell) {
	for j, c := range row {
		mirrored[j] = cell{c.h, c.hu, -c.hv}
	}
}

// speed returns the largest speed of waves in a cell.
func (c cell) speed() float64 {
	return max(math.Abs(c.hu), math.Abs(c.hv))/c.h + math.Sqrt(float64(gravity*c.h))
}

// maxSpeed returns the largest speed of waves in some cells.
func maxSpeed(cells []cell) (speed float64) {
	for _, c := range cells {
		speed = max(speed, c.speed())
	}
	return speed
}
