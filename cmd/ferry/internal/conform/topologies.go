package conform

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/mpi"
)

func topologyCases() []Case {
	return []Case{
		of("topology/dims are balanced", "8.5.2", 1, (*env).balancedDims),
		of("topology/cart: coordinates, ranks and shifts", "8.5.1", 1, (*env).cartGeometry),
		of("topology/cart: members outside get no communicator", "8.5.1", 2, (*env).smallerCart),
		of("topology/cart: sub and dup", "8.5.7", 1, (*env).subCart),
		of("topology/graph: edges from any member", "8.5.4", 1, (*env).graph),
		of("topology/neighbors of a cart, in every form", "8.6", 1, (*env).cartNeighbors),
		of("topology/neighbors of a graph, in every form", "8.6", 1, (*env).graphNeighbors),
	}
}

func (e *env) balancedDims() {
	for _, x := range []struct {
		n          int
		dims, want []int
	}{{6, []int{0, 0}, []int{3, 2}}, {7, []int{0, 0}, []int{7, 1}}, {6, []int{0, 3, 0}, []int{2, 3, 1}}} {
		got := need(mpi.Dims(x.n, x.dims...))(e)
		e.must(slices.Equal(got, x.want), "%d in %v: %v, want %v", x.n, x.dims, got, x.want)
	}
	_, err := mpi.Dims(7, 0, 3, 0)
	e.Is("7 processes in rows of 3", err, mpi.ErrTopology)
}

// cart creates a grid of all ranks in two dimensions, the first one periodic.
func (e *env) cart() *mpi.Cart {
	_, n := e.ranks()
	return need(mpi.NewCart(e.ctx, e.c, need(mpi.Dims(n, 0, 0))(e), []bool{true, false}, true))(e)
}

func (e *env) cartGeometry() {
	cart := e.cart()
	dims, me := cart.Dims(), cart.Comm().Rank()
	for rank := range cart.Comm().Size() {
		coords := need(cart.Coords(rank))(e)
		e.must(slices.Equal(coords, []int{rank / dims[1], rank % dims[1]}), "rank %d is at %v of %v", rank, coords, dims)
		e.must(need(cart.Rank(coords[0]+dims[0], coords[1]))(e) == rank, "the rank at %v is not %d", coords, rank)
	}
	at := need(cart.Coords(me))(e)
	for displacement := -2; displacement <= 2; displacement++ {
		source, destination, err := cart.Shift(1, displacement)
		e.Check(err)
		for got, x := range map[*int]int{&source: at[1] - displacement, &destination: at[1] + displacement} {
			want := mpi.ProcNull
			if x >= 0 && x < dims[1] {
				want = at[0]*dims[1] + x
			}
			e.must(*got == want, "shift by %d from %v: %d, want %d", displacement, at, *got, want)
		}
	}
	e.Check(cart.Comm().Close())
}

func (e *env) smallerCart() {
	me, n := e.ranks()
	cart, err := mpi.NewCart(e.ctx, e.c, []int{n - 1}, nil, false)
	if me == n-1 {
		e.Is("a grid without this rank", err, mpi.ErrNoComm)
	} else {
		e.Check(err)
		e.must(cart.Comm().Rank() == me && cart.Comm().Size() == n-1, "rank %d of %d", cart.Comm().Rank(), cart.Comm().Size())
		e.Check(cart.Comm().Close())
	}
	_, err = mpi.NewCart(e.ctx, e.c, []int{n + 1}, nil, false)
	e.Is("a larger grid", err, mpi.ErrTopology)
	e.Check(mpi.Barrier(e.ctx, e.c))
}

func (e *env) subCart() {
	cart := e.cart()
	at := need(cart.Coords(cart.Comm().Rank()))(e)
	d := need(cart.Comm().Dup(e.ctx))(e)
	copied, isCart := d.Cart()
	e.must(isCart && slices.Equal(copied.Dims(), cart.Dims()), "a duplicate has no grid")
	row := need(copied.Sub(e.ctx, false, true))(e)
	e.must(row.Comm().Rank() == at[1] && slices.Equal(row.Dims(), cart.Dims()[1:]) && !row.Periods()[0], "%v has rank %d of %v", at, row.Comm().Rank(), row.Dims())
	column := need(copied.Sub(e.ctx, true, false))(e)
	e.must(column.Comm().Rank() == at[0] && column.Periods()[0], "%v has rank %d of %v", at, column.Comm().Rank(), column.Dims())
	for _, c := range []*mpi.Comm{row.Comm(), column.Comm(), d, cart.Comm()} {
		e.Check(c.Close())
	}
}

// ringEdges are edges from each rank to the next one, twice, of weights 1 and 2, and to itself.
func (e *env) ringEdges(rank int) []mpi.Edge {
	_, n := e.ranks()
	next := (rank + 1) % n
	return []mpi.Edge{{From: rank, To: next, Weight: 1}, {From: rank, To: next, Weight: 2}, {From: rank, To: rank, Weight: 3}}
}

func (e *env) graph() {
	me, n := e.ranks()
	g := need(mpi.NewGraph(e.ctx, e.c, e.ringEdges((me+n/2)%n)...))(e) // Passed by another member.
	got := g.Neighbors()
	var in, out []mpi.Edge
	for _, x := range append(e.ringEdges(e.leftRank), e.ringEdges(me)...) {
		if x.To == me && !slices.Contains(in, x) {
			in = append(in, x)
		}
		if x.From == me && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	e.must(len(got.Sources) == len(in) && len(got.Destinations) == len(out), "neighbors %+v of edges %v and %v", got, in, out)
	for i, rank := range got.Sources {
		e.must(slices.Contains(in, mpi.Edge{From: rank, To: me, Weight: got.SourceWeights[i]}), "sources %+v, want %v", got, in)
	}
	for i, rank := range got.Destinations {
		e.must(slices.Contains(out, mpi.Edge{From: me, To: rank, Weight: got.DestinationWeights[i]}), "destinations %+v, want %v", got, out)
	}
	e.Check(g.Comm().Close())
}

func (e *env) cartNeighbors() {
	for _, isPeriodic := range []bool{false, true} {
		_, n := e.ranks()
		cart := need(mpi.NewCart(e.ctx, e.c, []int{n}, []bool{isPeriodic}, false))(e)
		before, behind, err := cart.Shift(0, 1)
		e.Check(err)
		// Block i of this rank goes to its neighbor i, which receives it as block 1-i.
		e.neighbors(cart.Comm(), []int{before, behind}, []int{1, 0}, 2)
		e.Check(cart.Comm().Close())
	}
}

func (e *env) graphNeighbors() {
	me, _ := e.ranks()
	g := need(mpi.NewAdjacentGraph(e.ctx, e.c, mpi.Neighbors{Sources: []int{e.leftRank, me, e.leftRank}, Destinations: []int{e.rightRank, e.rightRank, me}}))(e)
	sources, blocks := []int{e.leftRank, me, e.leftRank}, []int{0, 2, 1}
	if e.leftRank == me { // All three blocks are for itself, in their order.
		blocks = []int{0, 1, 2}
	}
	e.neighbors(g.Comm(), sources, blocks, 3)
	e.Check(g.Comm().Close())
}

// neighbors checks all collectives among neighbors. Source i sends block blocks[i] of destinations blocks.
func (e *env) neighbors(c *mpi.Comm, sources, blocks []int, destinations int) {
	me := c.Rank()
	for _, k := range []int{1, 3000} {
		var own, sent, gathered, exchanged []int
		for i := range destinations {
			sent = append(sent, nums(me, i, k)...)
		}
		own = nums(me, 9, k)
		counts, displs, sendCounts := make([]int, len(sources)), make([]int, len(sources)), slices.Repeat([]int{k}, destinations)
		for i, source := range sources {
			counts[i], displs[i] = k, i*k
			if source == mpi.ProcNull { // The block is not written.
				gathered, exchanged = append(gathered, unset(k)...), append(exchanged, unset(k)...)
			} else {
				gathered, exchanged = append(gathered, nums(source, 9, k)...), append(exchanged, nums(source, blocks[i], k)...)
			}
		}
		fresh := func() []int { return unset(len(sources) * k) }
		both(e, "neighbor_allgather", fresh, gathered, func(b []int) error { return mpi.NeighborAllgather(e.ctx, c, own, b) },
			func(b []int) (mpi.Request, error) { return mpi.IneighborAllgather(c, own, b) })
		both(e, "neighbor_allgatherv", fresh, gathered, func(b []int) error { return mpi.NeighborAllgatherv(e.ctx, c, own, b, counts, displs) },
			func(b []int) (mpi.Request, error) { return mpi.IneighborAllgatherv(c, own, b, counts, displs) })
		both(e, "neighbor_alltoall", fresh, exchanged, func(b []int) error { return mpi.NeighborAlltoall(e.ctx, c, sent, b) },
			func(b []int) (mpi.Request, error) { return mpi.IneighborAlltoall(c, sent, b) })
		both(e, "neighbor_alltoallv", fresh, exchanged, func(b []int) error {
			return mpi.NeighborAlltoallv(e.ctx, c, sent, sendCounts, nil, b, counts, displs)
		}, func(b []int) (mpi.Request, error) {
			return mpi.IneighborAlltoallv(c, sent, sendCounts, nil, b, counts, displs)
		})
		out, in := pieces(destinations, k), pieces(len(sources), k)
		both(e, "neighbor_alltoallw", fresh, exchanged, func(b []int) error {
			return mpi.NeighborAlltoallw(e.ctx, c, mem.Bytes(sent), out, mem.Bytes(b), in)
		}, func(b []int) (mpi.Request, error) {
			return mpi.IneighborAlltoallw(c, mem.Bytes(sent), out, mem.Bytes(b), in)
		})
		got := fresh()
		packed := need(mpi.NeighborAlltoallwInit(e.ctx, c, mem.Bytes(sent), out, mem.Bytes(got), in))(e)
		gather, exchange := need(mpi.NeighborAllgatherInit(e.ctx, c, own, got))(e), need(mpi.NeighborAlltoallInit(e.ctx, c, sent, got))(e)
		for range 2 {
			e.repeated(exchange, got, exchanged)
			e.repeated(packed, got, exchanged)
			e.repeated(gather, got, gathered)
		}
		e.Check(errors.Join(gather.Free(), exchange.Free(), packed.Free()))
	}
}

// pieces returns layouts of n blocks of k elements, each in two pieces.
func pieces(n, k int) []mpi.Layout {
	elem := mem.Size[int]()
	layouts := make([]mpi.Layout, n)
	for i := range layouts {
		layouts[i] = mpi.Indexed(mpi.Block{Bytes: 1}, mpi.Block{Offset: 1, Bytes: k*elem - 1}).At(i * k * elem)
	}
	return layouts
}

// repeated starts a persistent collective, and checks its result.
func (e *env) repeated(p *mpi.Persistent, got, want []int) {
	for i := range got {
		got[i] = -1
	}
	e.Check(p.Start())
	e.none("persistent")(p.Wait(e.ctx))
	e.must(slices.Equal(got, want), "persistent collective among neighbors: %v, want %v", got, want)
}
