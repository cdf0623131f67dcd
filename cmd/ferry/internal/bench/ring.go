package bench

import (
	"context"
	"math/rand/v2"

	"github.com/ferrympi/ferry/mpi"
)

// ringBytes is the size of the messages in a ring, that of HPCC's latency.
const ringBytes = 8

// randomRings is the number of random orders. Each has all iterations.
const randomRings = 10

// ring measures the rings of HPCC. In natural order, the neighbors of a rank are those below and above. In random order,
// they are its neighbors in random permutations, which are the same in each run.
func (r *rank) ring(ctx context.Context) error {
	order := make([]int, r.comm.Size())
	for i := range order {
		order[i] = i
	}
	err := r.row(ctx, ringBytes, func() (Row, error) { return r.rings(ctx, "natural", order) })
	if err != nil {
		return err
	}
	var orders [][]int
	for i := range randomRings {
		orders = append(orders, rand.New(rand.NewPCG(1, uint64(i))).Perm(r.comm.Size()))
	}
	return r.row(ctx, ringBytes, func() (Row, error) { return r.rings(ctx, "random", orders...) })
}

// rings times a message of each rank to both neighbors in the orders. The time is half of that for both, and each figure the mean over
// all ranks.
func (r *rank) rings(ctx context.Context, name string, orders ...[]int) (Row, error) {
	l := r.o.loop(ringBytes, 1000, 100, 100, 10)
	l.batchSize, l.opsPerIteration = 10, 2
	all := newSample()
	for _, order := range orders {
		left, right := neighbors(order, r.comm.Rank())
		if err := mpi.Barrier(ctx, r.comm); err != nil {
			return Row{}, err
		}
		s, err := l.time(func(n int) error { return r.bothWays(ctx, n, left, right) }, nil)
		if err != nil {
			return Row{}, err
		}
		all.merge(s)
	}
	row, err := r.overAllRanks(ctx, all)
	row.Bench = r.o.name + "/" + name
	return row, err
}

// neighbors returns the ranks before and after a rank in a ring.
func neighbors(order []int, rank int) (left, right int) {
	n := len(order)
	for i, other := range order {
		if other == rank {
			left, right = order[(i+n-1)%n], order[(i+1)%n]
		}
	}
	return left, right
}

// bothWays sends n messages to each neighbor, the right one first, and receives as many.
func (r *rank) bothWays(ctx context.Context, n, left, right int) error {
	const tag = 1
	send, recv := make([]byte, ringBytes), make([]byte, ringBytes)
	for range n {
		if _, err := r.comm.Sendrecv(ctx, send, right, tag, recv, left, tag); err != nil {
			return err
		}
		if _, err := r.comm.Sendrecv(ctx, send, left, tag, recv, right, tag); err != nil {
			return err
		}
	}
	return nil
}
