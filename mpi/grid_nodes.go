package mpi

import (
	"slices"

	"github.com/ferrympi/ferry/coll"
)

// arrange assigns the cells of a grid to ranks on nodes, so that fewer neighbors are on different nodes. Each node gets
// a block of cells. The result has the cell of each rank; nil leaves rank r at cell r, which is best unless all nodes have
// the same number of ranks, and blocks of that many cells fill the grid.
func (g *grid) arrange(nodes coll.Placement) []int {
	if nodes.Len() != g.size {
		return nil
	}
	perNode := g.size / nodes.Count()
	ranks, before := make([][]int, nodes.Count()), make([]int, g.size)
	for node := range ranks {
		if ranks[node] = nodes.Ranks(node); len(ranks[node]) != perNode {
			return nil
		}
		for _, rank := range ranks[node] {
			before[rank] = node
		}
	}
	block := g.bestBlock(perNode)
	if block == nil {
		return nil
	}
	cells, arranged := make([]int, g.size), make([]int, g.size)
	used := make([]int, len(ranks))
	for cell := range g.size {
		node := g.blockOf(cell, block)
		rank := ranks[node][used[node]]
		used[node]++
		cells[rank], arranged[cell] = cell, node
	}
	if g.cut(arranged) >= g.cut(before) {
		return nil
	}
	return cells
}

// bestBlock returns the shape of a block of n cells that divides the grid evenly, with the fewest neighbors in other
// blocks; nil if there is none.
func (g *grid) bestBlock(n int) (best []int) {
	least, block := 0, make([]int, len(g.dims))
	var try func(dim, rest int)
	try = func(dim, rest int) {
		if dim < len(g.dims) {
			for _, d := range divisors(g.dims[dim]) {
				if rest%d == 0 {
					block[dim] = d
					try(dim+1, rest/d)
				}
			}
			return
		}
		if surface := g.surface(block); rest == 1 && (best == nil || surface < least) {
			best, least = slices.Clone(block), surface
		}
	}
	try(0, n)
	return best
}

// surface returns the number of neighbors in different blocks, each pair once.
func (g *grid) surface(block []int) (n int) {
	for i, d := range g.dims {
		faces := d / block[i]
		if !g.isPeriodic[i] || faces == 1 {
			faces--
		}
		n += faces * (g.size / d)
	}
	return n
}

// blockOf returns the number of the block of a cell, in row-major order.
func (g *grid) blockOf(cell int, block []int) (number int) {
	for i, x := range g.coords(cell) {
		number = number*(g.dims[i]/block[i]) + x/block[i]
	}
	return number
}

// cut returns the number of neighbors on different nodes. nodes has the node of each cell.
func (g *grid) cut(nodes []int) (n int) {
	for cell, node := range nodes {
		for _, r := range g.neighbors(cell) {
			if r >= 0 && nodes[r] != node {
				n++
			}
		}
	}
	return n
}
