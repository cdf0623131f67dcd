package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// product computes y = A x on ranks of one process, with copies of borders in place of messages.
func product(cube, ranks int, x []float64, spoil func(*matrix, []float64)) []float64 {
	y := make([]float64, len(x))
	for r := range ranks {
		m := newMatrix(cube, r, ranks)
		mine := m.vector()
		copy(mine, x[m.neededRows.first:m.neededRows.end])
		if spoil != nil {
			spoil(m, mine)
		}
		result := m.vector()
		m.multiply(result, mine, m.innerRows.first, m.innerRows.end)
		m.multiply(result, mine, m.ownRows.first, m.innerRows.first)
		m.multiply(result, mine, m.innerRows.end, m.ownRows.end)
		copy(y[m.ownRows.first:m.ownRows.end], m.part(result, m.ownRows))
	}
	return y
}

func operand(cube int) []float64 {
	m := newMatrix(cube, 0, 1)
	x := m.vector()
	m.fill(x)
	return x
}

func TestProduct_Split_EqualsSerial(t *testing.T) {
	for _, cube := range []int{1, 2, 3, 5, 8} {
		x := operand(cube)
		for _, ranks := range []int{1, 2, 3, 4, 7, 30} {
			if d := largestDifference(cube, x, product(cube, ranks, x, nil)); d > tolerance {
				t.Errorf("cube %d on %d ranks: a row differs by %g", cube, ranks, d)
			}
		}
	}
}

func TestVerdict_OnlyRightProduct_IsOK(t *testing.T) {
	for worst, right := range map[float64]bool{0: true, tolerance: true, 2 * tolerance: false, math.Inf(1): false} {
		var out strings.Builder
		if err := verdict(&out, 3, worst); (err == nil) != right || strings.HasPrefix(out.String(), "ok: ") != right {
			t.Errorf("difference %g: %v, %q", worst, err, out.String())
		}
	}
}

func TestCheck_WrongBorderElement_IsNoticed(t *testing.T) {
	const cube, ranks = 6, 3
	x := operand(cube)
	y := product(cube, ranks, x, func(m *matrix, v []float64) {
		if m.ownRows.first > 0 {
			v[m.ownRows.first-1-m.neededRows.first] = 0 // never arrived
		}
	})
	if d := largestDifference(cube, x, y); d <= tolerance {
		t.Errorf("the difference is %g", d)
	}
}

func TestMatrix_InnerRows_TouchOwnElementsOnly(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		for r := range ranks {
			m := newMatrix(6, r, ranks)
			for row := m.innerRows.first; row < m.innerRows.end; row++ {
				eachNonzero(6, row, func(column int, _ float64) {
					if column < m.ownRows.first || column >= m.ownRows.end {
						t.Fatalf("rank %d of %d: inner row %d touches %d", r, ranks, row, column)
					}
				})
			}
		}
	}
}

func TestHalo_Neighbors_Agree(t *testing.T) {
	for _, ranks := range []int{2, 3, 7, 20, 300} {
		const cube = 6
		halos := make([][]borderPeer, ranks)
		for r := range ranks {
			halos[r] = borderPeersOf(newMatrix(cube, r, ranks), r, ranks)
		}
		for r, borderPeers := range halos {
			for _, n := range borderPeers {
				if !slices.Contains(halos[n.rank], borderPeer{rank: r, recvRows: n.sendRows, sendRows: n.recvRows}) {
					t.Fatalf("%d ranks: %d exchanges %+v, its neighbor doesn't", ranks, r, n)
				}
			}
		}
	}
}
