package main

import (
	"errors"
	"slices"
	"testing"
)

func TestShare_AnyRanks_CoversEachRowOnce(t *testing.T) {
	for grid := 1; grid < 12; grid++ {
		for ranks := 1; ranks < 15; ranks++ {
			next := 0
			for rank := range ranks {
				first, rows := share(grid, rank, ranks)
				if first != next || rank < grid && rows == 0 {
					t.Errorf("rank %d of %d has rows %d to %d of %d", rank, ranks, first, first+rows, grid)
				}
				next = first + rows
			}
			if next != grid {
				t.Errorf("%d ranks have %d rows of %d", ranks, next, grid)
			}
		}
	}
}

func TestHolders_RanksLeave_RowsHaveTwoCopies(t *testing.T) {
	const yes, no = true, false
	for _, c := range []struct {
		stays []bool
		rank  int
		want  []int
	}{
		{[]bool{yes}, 0, []int{0}},
		{[]bool{yes, yes, yes}, 0, []int{0, 1}},
		{[]bool{yes, yes, yes}, 2, []int{2, 0}},
		{[]bool{yes, no, yes}, 0, []int{0, 2}},
		{[]bool{yes, no, yes}, 1, []int{1, 2, 0}},
		{[]bool{yes, no, no}, 0, []int{0}},
		{[]bool{yes, no, no}, 2, []int{2, 0}},
		{[]bool{no, no}, 1, []int{1}},
	} {
		if got := holders(c.rank, c.stays); !slices.Equal(got, c.want) {
			t.Errorf("rank %d of %v: %v, want %v", c.rank, c.stays, got, c.want)
		}
	}
}

func TestCheckpoint_Row_IsThatOfTheBlock(t *testing.T) {
	const grid = 6
	c := initialCheckpoint(grid, 0, 3)
	for row := range grid {
		want := newBlock(grid, row, 1).cells
		if row == 2 || row == 3 { // Those of rank 1, which rank 2 copies.
			want = nil
		}
		if got := c.row(grid, row); !slices.Equal(got, want) {
			t.Errorf("row %d: %v, want %v", row, got, want)
		}
	}
	idle := initialCheckpoint(2, 2, 3)
	if n := len(idle.blocks()); n != 1 || idle.row(2, 1) == nil {
		t.Errorf("a rank without rows holds %d blocks, want the copy of row 1", n)
	}
}

func TestCheckRows_RowWithoutSource_IsNamed(t *testing.T) {
	err := checkRows([][]int{{0}, {}, nil, {1}}, 40)
	const want = "rows 1 to 2 of step 40 are lost: a rank and the holder of its copy have died: start the job again"
	if !errors.Is(err, errLost) || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	if err := checkRows([][]int{{0}, {1, 0}}, 40); err != nil {
		t.Error(err)
	}
}

func TestCells_Floats_AreTheSameCells(t *testing.T) {
	want := []cell{{1, 2, 3}, {4, 5, 6}}
	if got := cells(floats(want)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
