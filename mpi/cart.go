package mpi

import (
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/coll"
)

// Cart is a communicator with a Cartesian grid of members (MPI-4.1 section 8.5). Ranks are in row-major order, in which the
// last coordinate changes fastest. All methods but Sub are local, and may be called concurrently.
type Cart struct {
	comm *Comm
	grid *grid
}

// NewCart creates a communicator of a grid from members of c (MPI_Cart_create). It is collective over c, and all
// members pass the same arguments. A neighbor at the end of a periodic dimension is the cell at its other end. periods
// is nil if no dimension is periodic. The grid may have fewer cells than c has members; the others get ErrNoComm.
// ErrTopology for dimensions that do not fit, at once and for that caller alone.
//
// With reorder, ranks may differ from those in c. Each node gets a block of the grid if all nodes have the same number of
// members, blocks of that size fill the grid, and fewer neighbors are on different nodes then. Otherwise, and without
// reorder, the members keep their ranks. Creation sends messages for a smaller grid and for other ranks only.
//
// Close the communicator, Comm, after use.
func NewCart(ctx context.Context, c *Comm, dims []int, periods []bool, reorder bool) (*Cart, error) {
	g, err := newGrid(dims, periods)
	if err != nil {
		return nil, err
	}
	if c.isClosed() {
		return nil, c.errClosed()
	}
	if g.size > c.size {
		return nil, fmt.Errorf("%w: dimensions %v need %d processes, and the communicator has %d", ErrTopology, dims, g.size, c.size)
	}
	var d *Comm
	var cells []int
	if reorder {
		cells = g.arrange(c.session.process.Nodes(c.spec.Members))
	}
	switch {
	case cells != nil:
		d, err = c.split(ctx, "cart", 0, cells[c.rank], nil)
	case g.size == c.size:
		d, err = c.derived(ctx, "cart")
	case c.rank < g.size:
		d, err = c.split(ctx, "cart", 0, c.rank, nil)
	default:
		d, err = c.split(ctx, "cart", Undefined, 0, nil)
	}
	if err != nil {
		return nil, err
	}
	return d.asCart(g), nil
}

// asCart gives a new communicator a grid.
func (c *Comm) asCart(g *grid) *Cart {
	ranks := g.neighbors(c.rank)
	c.topology = newTopology(&topology{grid: g}, coll.Neighborhood{Sources: ranks, Destinations: ranks, ReceiveOrder: coll.SwapPairs(len(ranks))})
	return &Cart{c, g}
}

// Cart returns the grid of a communicator that NewCart or Sub has made, or that duplicates such a one (MPI_Topo_test,
// MPI_Cart_get). It is false for others.
func (c *Comm) Cart() (*Cart, bool) {
	if c.topology == nil || c.topology.grid == nil {
		return nil, false
	}
	return &Cart{c, c.topology.grid}, true
}

// Comm returns the communicator.
func (t *Cart) Comm() *Comm { return t.comm }

// Dims returns the sizes of the dimensions (MPI_Cartdim_get, MPI_Cart_get).
func (t *Cart) Dims() []int { return slices.Clone(t.grid.dims) }

// Periods returns which dimensions are periodic (MPI_Cart_get).
func (t *Cart) Periods() []bool { return slices.Clone(t.grid.isPeriodic) }

// Coords returns the coordinates of a rank (MPI_Cart_coords). ErrRank for a rank out of range.
func (t *Cart) Coords(rank int) ([]int, error) {
	if rank < 0 || rank >= t.grid.size {
		return nil, t.comm.errRank(rank)
	}
	return t.grid.coords(rank), nil
}

// Rank returns the rank at coordinates (MPI_Cart_rank), one for each dimension, else ErrTopology. In periodic
// dimensions any coordinate is valid, and wraps around. In others, one outside the grid is ErrRank.
func (t *Cart) Rank(coords ...int) (int, error) {
	if len(coords) != len(t.grid.dims) {
		return Undefined, fmt.Errorf("%w: %d coordinates, in a grid of %d dimensions", ErrTopology, len(coords), len(t.grid.dims))
	}
	rank := t.grid.rank(coords)
	if rank < 0 {
		return Undefined, fmt.Errorf("%w: coordinates %v, in a grid of %v", ErrRank, coords, t.grid.dims)
	}
	return rank, nil
}

// Shift returns the ranks to receive from and to send to when all members send to the member at a displacement along a
// dimension (MPI_Cart_shift). ProcNull stands for a rank outside the grid. ErrTopology for a dimension out of range.
func (t *Cart) Shift(dim, displacement int) (source, destination int, err error) {
	if dim < 0 || dim >= len(t.grid.dims) {
		return ProcNull, ProcNull, fmt.Errorf("%w: dimension %d, in a grid of %d dimensions", ErrTopology, dim, len(t.grid.dims))
	}
	source, destination = t.grid.shift(t.comm.rank, dim, displacement)
	return source, destination, nil
}

// Sub divides the grid into grids of the dimensions that remain, and returns the caller's (MPI_Cart_sub). remain has a
// value for each dimension, else ErrTopology. It is collective over Comm, and all members pass the same arguments.
func (t *Cart) Sub(ctx context.Context, remain ...bool) (*Cart, error) {
	if len(remain) != len(t.grid.dims) {
		return nil, fmt.Errorf("%w: %d values for the dimensions that remain, in a grid of %d dimensions", ErrTopology, len(remain), len(t.grid.dims))
	}
	part, position, rank := t.grid.sub(remain, t.comm.rank)
	d, err := t.comm.split(ctx, "cart sub", position, rank, nil)
	if err != nil {
		return nil, err
	}
	return d.asCart(part), nil
}
