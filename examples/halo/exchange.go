package main

import (
	"context"

	"github.com/ferrympi/ferry/mpi"
)

// halo exchanges the cells around a block with the 26 neighbors of a rank.
type halo struct {
	coords               []int
	directions           [][3]int
	graph                *mpi.Graph
	sendCells, recvCells []uint32
	exchangeRequest      *mpi.Persistent
}

// newHalo creates the graph of the neighbors. Source i is the rank opposite to destination i, so that blocks
// between the same two ranks match in the order of the directions.
func newHalo(ctx context.Context, cart *mpi.Cart, n int) (*halo, error) {
	h := &halo{}
	var err error
	if h.coords, err = cart.Coords(cart.Comm().Rank()); err != nil {
		return nil, err
	}
	var neighbors mpi.Neighbors
	var counts []int
	cells := 0
	for i := range 27 {
		d := [3]int{i/9 - 1, i/3%3 - 1, i%3 - 1}
		if d == [3]int{} {
			continue
		}
		to, err := h.neighbor(cart, d, 1)
		if err != nil {
			return nil, err
		}
		from, err := h.neighbor(cart, d, -1)
		if err != nil {
			return nil, err
		}
		neighbors.Destinations, neighbors.Sources = append(neighbors.Destinations, to), append(neighbors.Sources, from)
		h.directions = append(h.directions, d)
		count := 1
		for _, x := range d {
			if x == 0 {
				count *= n
			}
		}
		counts, cells = append(counts, count), cells+count
	}
	h.sendCells, h.recvCells = make([]uint32, cells), make([]uint32, cells)
	if h.graph, err = mpi.NewAdjacentGraph(ctx, cart.Comm(), neighbors); err != nil {
		return nil, err
	}
	h.exchangeRequest, err = mpi.NeighborAlltoallvInit(ctx, h.graph.Comm(), h.sendCells, counts, nil, h.recvCells, counts, nil)
	return h, err
}

// neighbor returns the rank in a direction, or opposite to it.
func (h *halo) neighbor(cart *mpi.Cart, d [3]int, sign int) (int, error) {
	return cart.Rank(h.coords[0]+sign*d[0], h.coords[1]+sign*d[1], h.coords[2]+sign*d[2])
}

// exchange sends the cells at the faces, edges and corners of the block, and receives those around it.
func (h *halo) exchange(ctx context.Context, b *block) error {
	i := 0
	for _, d := range h.directions {
		b.region(d, 1, 0, func(cell *uint32) { h.sendCells[i] = *cell; i++ })
	}
	if err := h.exchangeRequest.Start(); err != nil {
		return err
	}
	if _, err := h.exchangeRequest.Wait(ctx); err != nil {
		return err
	}
	i = 0
	for _, d := range h.directions { // Cells sent in a direction arrive at the opposite side.
		b.region(d, -1, 1, func(cell *uint32) { *cell = h.recvCells[i]; i++ })
	}
	return nil
}

// region calls f with the cells on a side of the block, with sign 1 in a direction, and with -1 opposite to it. With outside 1 the cells are those around the block.
func (b *block) region(d [3]int, sign, outside int, f func(*uint32)) {
	var from, to [3]int
	for i, n := range b.size {
		switch sign * d[i] {
		case 0:
			from[i], to[i] = 0, n
		case 1:
			from[i], to[i] = n-1+outside, n+outside
		default:
			from[i], to[i] = -outside, 1-outside
		}
	}
	for x := from[0]; x < to[0]; x++ {
		for y := from[1]; y < to[1]; y++ {
			for z := from[2]; z < to[2]; z++ {
				f(&b.cells[b.index(x, y, z)])
			}
		}
	}
}

func (h *halo) close() {
	_ = h.exchangeRequest.Free()
	_ = h.graph.Comm().Close()
}
