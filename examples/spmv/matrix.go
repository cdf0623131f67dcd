package main

import "math"

// maxCube keeps column indices within 32 bits.
const maxCube = 1200

// The matrix is that of the 27-point stencil, 26 on the diagonal and -1 for each
// neighbor, divided by its largest eigenvalue's bound: repeated products
// neither grow nor vanish.
const (
	scale    = 1.0 / 36
	diagonal = 26 * scale
	neighbor = -1 * scale
)

// span is the range of rows from first to end, without end.
type span struct{ first, end int }

func (s span) len() int { return max(0, s.end-s.first) }

func (s span) intersect(t span) span { return span{max(s.first, t.first), min(s.end, t.end)} }

// ownedBy returns the rows of one rank; shares differ by one row at most.
func ownedBy(rows, rank, ranks int) span {
	return span{rows * rank / ranks, rows * (rank + 1) / ranks}
}

// matrix is one rank's rows in compressed sparse row format. Vectors hold the elements of neededRows, which these
// rows touch; ownRows is this rank's part of them.
type matrix struct {
	cubeSize                       int
	ownRows, innerRows, neededRows span // Inner rows touch nothing but own elements.
	rowStarts                      []int
	columnIndex                    []int32 // Into a vector of this rank.
	value                          []float64
}

// reachOf is how far the rows are at most that a row touches.
func reachOf(cube int) int { return cube*cube + cube + 1 }

func newMatrix(cube, rank, ranks int) *matrix {
	rows, reach := cube*cube*cube, reachOf(cube)
	own := ownedBy(rows, rank, ranks)
	m := &matrix{
		cubeSize: cube, ownRows: own,
		neededRows: span{max(0, own.first-reach), min(rows, own.end+reach)},
		innerRows:  span{own.first + reach, own.end - reach},
	}
	if own.first == 0 {
		m.innerRows.first = 0
	}
	if own.end == rows {
		m.innerRows.end = rows
	}
	if own.len() == 0 {
		m.neededRows = own
	}
	if m.innerRows.first >= m.innerRows.end { // a thin slab has borders only
		m.innerRows = span{own.end, own.end}
	}
	m.rowStarts = make([]int, 1, own.len()+1)
	m.columnIndex = make([]int32, 0, 27*own.len())
	m.value = make([]float64, 0, 27*own.len())
	for row := own.first; row < own.end; row++ {
		eachNonzero(cube, row, func(column int, value float64) {
			m.columnIndex = append(m.columnIndex, int32(column-m.neededRows.first))
			m.value = append(m.value, value)
		})
		m.rowStarts = append(m.rowStarts, len(m.columnIndex))
	}
	return m
}

// eachNonzero calls f for those of a row, in the order of their columns.
func eachNonzero(cube, row int, f func(column int, value float64)) {
	x, y, z := row%cube, row/cube%cube, row/cube/cube
	for k := max(0, z-1); k <= min(cube-1, z+1); k++ {
		for j := max(0, y-1); j <= min(cube-1, y+1); j++ {
			for i := max(0, x-1); i <= min(cube-1, x+1); i++ {
				column, value := (k*cube+j)*cube+i, neighbor
				if column == row {
					value = diagonal
				}
				f(column, value)
			}
		}
	}
}

// nonzeros returns the number of nonzeros of the whole matrix. Along each axis N points have
// 3N-2 neighbors, themselves included.
func nonzeros(cube int) int {
	n := 3*cube - 2
	return n * n * n
}

func (m *matrix) vector() []float64 { return make([]float64, m.neededRows.len()) }

// part returns the elements of v that belong to rows.
func (m *matrix) part(v []float64, rows span) []float64 {
	return v[rows.first-m.neededRows.first : rows.first-m.neededRows.first+rows.len()]
}

// fill sets the own elements of v to pseudorandom values that depend on the
// row alone, so that a missing, late or swapped border changes the result.
func (m *matrix) fill(v []float64) {
	own := m.part(v, m.ownRows)
	for i := range own {
		h := uint64(m.ownRows.first+i+1) * 0x9e3779b97f4a7c15
		h ^= h >> 29
		h *= 0xbf58476d1ce4e5b9
		own[i] = float64(h>>11)/(1<<53) - 0.5
	}
}

// multiply computes the given rows of y = A x.
func (m *matrix) multiply(y, x []float64, first, end int) {
	shift := m.ownRows.first - m.neededRows.first
	for row := first - m.ownRows.first; row < end-m.ownRows.first; row++ {
		from, to := m.rowStarts[row], m.rowStarts[row+1]
		values := m.value[from:to]
		columns := m.columnIndex[from:to]
		var sum float64
		for i, c := range columns {
			sum += values[i] * x[c]
		}
		y[row+shift] = sum
	}
}

// largestDifference does the whole product without the matrix, straight from
// the stencil, and compares.
func largestDifference(cube int, x, y []float64) float64 {
	var worst float64
	for row := range y {
		var sum float64
		eachNonzero(cube, row, func(column int, value float64) { sum += value * x[column] })
		d := math.Abs(sum - y[row])
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}
