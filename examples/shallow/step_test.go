package main

import (
	"math"
	"testing"
)

// surround returns the cells of a grid with the rows behind the walls.
func surround(cells []cell, grid int) []cell {
	all := make([]cell, len(cells)+2*grid)
	copy(all[grid:], cells)
	mirrorColumns(all[:grid], cells[:grid])
	mirrorColumns(all[len(all)-grid:], cells[len(cells)-grid:])
	return all
}

func TestSweep_WaterAtRest_Remains(t *testing.T) {
	const grid = 5
	cells := make([]cell, grid*grid)
	for i := range cells {
		cells[i].h = depth
	}
	next := make([]cell, (grid+2)*grid)
	speed := newBasin(grid).sweep(next, surround(cells, grid), 1, grid, maxSpeed(cells))
	for i, c := range next[grid : len(next)-grid] {
		if c != cells[i] {
			t.Fatalf("cell %d is %v after a step", i, c)
		}
	}
	if want := math.Sqrt(gravity * depth); math.Abs(speed-want) > 1e-12 {
		t.Errorf("the largest wave speed is %v, want %v", speed, want)
	}
}

// A turned basin has the same waves, turned.
func TestSweep_TurnedBasin_TurnedResult(t *testing.T) {
	const grid = 8
	one, other := newBlock(grid, 0, grid).cells, make([]cell, grid*grid)
	for i := range other {
		other[i] = one[i%grid*grid+i/grid].turned()
	}
	basin := newBasin(grid)
	for range 30 {
		waves := maxSpeed(one)
		for _, cells := range [][]cell{one, other} {
			next := make([]cell, (grid+2)*grid)
			basin.sweep(next, surround(cells, grid), 1, grid, waves)
			copy(cells, next[grid:])
		}
	}
	isMoving := false
	for i, c := range other {
		isMoving = isMoving || math.Abs(c.hu) > 0.01
		if d := one[i%grid*grid+i/grid].turned(); math.Abs(c.h-d.h) > 1e-12 || math.Abs(c.hu-d.hu) > 1e-12 || math.Abs(c.hv-d.hv) > 1e-12 {
			t.Fatalf("cell %d is %v, and %v turned", i, c, d)
		}
	}
	if !isMoving {
		t.Error("the water is at rest")
	}
}

func TestSweep_Rows_AreIndependentOfTheirBlock(t *testing.T) {
	const grid = 7
	now := surround(newBlock(grid, 0, grid).cells, grid)
	whole, parts := make([]cell, len(now)), make([]cell, len(now))
	basin := newBasin(grid)
	speed := basin.sweep(whole, now, 1, grid, 12)
	parted := max(basin.sweep(parts, now, 1, 3, 12), basin.sweep(parts, now, 4, 4, 12), basin.sweep(parts, now, 5, grid, 12))
	for i := range whole {
		if whole[i] != parts[i] {
			t.Fatalf("cell %d is %v in the whole, and %v in parts", i, whole[i], parts[i])
		}
	}
	if speed != parted || basin.sweep(parts, now, 4, 3, 12) != 0 {
		t.Errorf("the largest wave speed is %v in the whole, and %v in parts", speed, parted)
	}
}

func TestResult_MassHasChanged_IsAnError(t *testing.T) {
	for drift, isOK := range map[float64]bool{0: true, -1e-15: true, 1e-9: false, -1e-9: false, math.NaN(): false} {
		if err := (&result{massDrift: drift}).check(); (err == nil) != isOK {
			t.Errorf("drift %v: %v", drift, err)
		}
	}
}
