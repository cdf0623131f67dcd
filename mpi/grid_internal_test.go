package mpi

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/coll"
)

// drawGrid draws a grid of at most 4 dimensions.
func drawGrid(t *rapid.T) *grid {
	dims := rapid.SliceOfN(rapid.IntRange(1, 5), 0, 4).Draw(t, "dimensions")
	periods := rapid.SliceOfN(rapid.Bool(), len(dims), len(dims)).Draw(t, "periods")
	g, err := newGrid(dims, periods)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// cellsOf lists the coordinates of all cells in the order of ranks.
func cellsOf(dims []int) [][]int {
	if len(dims) == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for x := range dims[0] {
		for _, rest := range cellsOf(dims[1:]) {
			all = append(all, append([]int{x}, rest...))
		}
	}
	return all
}

// TestGrid_AnyCell_CoordsAndRankAreInverse compares with the list of all cells.
func TestGrid_AnyCell_CoordsAndRankAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		cells := cellsOf(g.dims)
		if len(cells) != g.size {
			t.Fatalf("the size is %d, want %d", g.size, len(cells))
		}
		for rank, want := range cells {
			if got := g.coords(rank); !slices.Equal(got, want) || g.rank(got) != rank {
				t.Fatalf("rank %d is at %v, want %v; the rank there is %d", rank, got, want, g.rank(got))
			}
		}
	})
}

// TestGrid_CoordsOutside_WrapInPeriodicDimensionsOnly takes steps of one cell as a reference.
func TestGrid_CoordsOutside_WrapInPeriodicDimensionsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		coords, inside, isIn := make([]int, len(g.dims)), make([]int, len(g.dims)), true
		for i, d := range g.dims {
			coords[i] = rapid.IntRange(-3*d, 3*d).Draw(t, "coordinate")
			for inside[i] = coords[i]; inside[i] < 0; inside[i] += d {
				isIn = isIn && g.isPeriodic[i]
			}
			for ; inside[i] >= d; inside[i] -= d {
				isIn = isIn && g.isPeriodic[i]
			}
		}
		want := -1
		if isIn {
			want = slices.IndexFunc(cellsOf(g.dims), func(c []int) bool { return slices.Equal(c, inside) })
		}
		if got := g.rank(coords); got != want {
			t.Fatalf("the rank at %v is %d, want %d", coords, got, want)
		}
	})
}

// The destination's source is the rank itself, and the other direction is the opposite displacement.
func TestGrid_Shift_IsSymmetric(t *testing.T) {
	far := rapid.SampledFrom([]int{math.MinInt, math.MinInt + 1, math.MaxInt, math.MaxInt - 1})
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		if len(g.dims) == 0 {
			return
		}
		rank, dim := rapid.IntRange(0, g.size-1).Draw(t, "rank"), rapid.IntRange(0, len(g.dims)-1).Draw(t, "dimension")
		by := rapid.OneOf(rapid.IntRange(-12, 12), far).Draw(t, "displacement")
		source, destination := g.shift(rank, dim, by)
		if destination != ProcNull {
			if back, _ := g.shift(destination, dim, by); back != rank {
				t.Fatalf("rank %d sends to %d, which receives from %d", rank, destination, back)
			}
		}
		if source != ProcNull {
			if _, there := g.shift(source, dim, by); there != rank {
				t.Fatalf("rank %d receives from %d, which sends to %d", rank, source, there)
			}
		}
		if by > -100 && by < 100 {
			moved := g.coords(rank)
			moved[dim] += by
			if want := g.rank(moved); max(destination, -1) != want {
				t.Fatalf("the rank at %v is %d, and the destination %d", moved, want, destination)
			}
		} else if !g.isPeriodic[dim] && (source != ProcNull || destination != ProcNull) {
			t.Fatalf("ranks %d and %d are at a displacement of %d", source, destination, by)
		}
	})
}

// Every rank is in one part, and no two have one rank there.
func TestGrid_Sub_PartsAreDisjointAndComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		remain := rapid.SliceOfN(rapid.Bool(), len(g.dims), len(g.dims)).Draw(t, "remain")
		seen := map[[2]int]bool{}
		for rank := range g.size {
			part, position, inPart := g.sub(remain, rank)
			var want []int
			for i, x := range g.coords(rank) {
				if remain[i] {
					want = append(want, x)
				}
			}
			if at := [2]int{position, inPart}; seen[at] || !slices.Equal(part.coords(inPart), want) || position >= g.size/part.size {
				t.Fatalf("rank %d is rank %d of part %d, at %v, want %v", rank, inPart, position, part.coords(inPart), want)
			}
			seen[[2]int{position, inPart}] = true
		}
	})
}

// Each rank gets a cell, and fewer neighbors are on different nodes.
func TestGrid_Arrange_MovesNeighborsToTheirNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		perNode := rapid.SampledFrom(divisors(g.size)).Draw(t, "ranks of a node")
		nodes := make([]int, g.size)
		for rank := range nodes {
			nodes[rank] = rank / perNode
		}
		if rapid.Bool().Draw(t, "in turns") {
			for rank := range nodes {
				nodes[rank] = rank % (g.size / perNode)
			}
		}
		if block := g.bestBlock(perNode); block != nil {
			blocks := make([]int, g.size)
			for cell := range blocks {
				blocks[cell] = g.blockOf(cell, block)
			}
			if g.cut(blocks) != 2*g.surface(block) {
				t.Fatalf("%d neighbors are in other blocks of %v, and the surface is %d", g.cut(blocks), block, g.surface(block))
			}
		}
		cells := g.arrange(coll.PlacementOf(nodes...))
		if cells == nil {
			return
		}
		arranged := make([]int, g.size)
		for rank, cell := range cells {
			arranged[cell] = nodes[rank]
		}
		sorted := slices.Sorted(slices.Values(cells))
		for cell, at := range sorted {
			if cell != at {
				t.Fatalf("cells %v are not a permutation", cells)
			}
		}
		if g.cut(arranged) >= g.cut(nodes) {
			t.Fatalf("%d neighbors are on different nodes, and %d before", g.cut(arranged), g.cut(nodes))
		}
	})
}

func TestGrid_ArrangeNodesInTurns_GivesEachNodeABlock(t *testing.T) {
	g, err := newGrid([]int{4, 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	nodes := make([]int, 16)
	for rank := range nodes {
		nodes[rank] = rank % 4
	}
	cells := g.arrange(coll.PlacementOf(nodes...))
	if len(cells) != 16 {
		t.Fatalf("the cells are %v", cells)
	}
	for rank, cell := range cells {
		at := g.coords(cell)
		if got := at[0]/2*2 + at[1]/2; got != nodes[rank] {
			t.Errorf("rank %d of node %d is at %v, in block %d", rank, nodes[rank], at, got)
		}
	}
	for what, nodes := range map[string][]int{"one node": nil, "nodes of different sizes": append([]int{0, 1}, make([]int, 14)...), "another size": {0, 1}} {
		if cells := g.arrange(coll.PlacementOf(nodes...)); cells != nil {
			t.Errorf("%s: cells %v", what, cells)
		}
	}
}
