// Sparse adds up a number of each process without a communicator of all processes. It makes one communicator of the
// processes of each node (mpix://SHARED), and one of the first process of each node (mpix://ROOTS). An allreduce over the
// node, one over the roots and a broadcast over the node give each process the sum. Then it does the same over
// mpi://WORLD, compares the sums, and prints the open paths and the private memory of both.
//
//	ferry run -n 8 --nodes 4 bin/sparse
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "sparse:", err)
		os.Exit(1)
	}
}

// rounds is the number of sums. Collectives of a node open their shared memory at the second one.
const rounds = 3

// repeats is the number of measurements. The first one loads code, and is dropped.
const repeats = 6

func run(ctx context.Context) error {
	var sparse, world []cost
	for range repeats {
		c, err := measure(ctx, overNodes)
		if err != nil {
			return fmt.Errorf("SHARED and ROOTS: %w", err)
		}
		sparse = append(sparse, c)
		if c, err = measure(ctx, overWorld); err != nil {
			return fmt.Errorf("WORLD: %w", err)
		}
		world = append(world, c)
	}
	return report(ctx, middle(sparse[1:]), middle(world[1:]))
}

// An adder returns the sum of a number of each process.
type adder func(ctx context.Context, x int64) (int64, error)

// measure returns the cost of a session with communicators in this process. The memory is that which their end frees.
func measure(ctx context.Context, create creator) (cost, error) {
	c, err := use(ctx, create)
	if err != nil {
		return c, err
	}
	after, err := privateMemory()
	c.Private = max(c.Private-after, 0)
	return c, err
}

// A creator creates communicators. free closes them, also after an error.
type creator func(context.Context, *mpi.Session) (add adder, free func() error, err error)

// use makes communicators in a session of their own, adds up the ranks, checks the sum, and returns the paths and the private
// memory of the process.
func use(ctx context.Context, create creator) (c cost, err error) {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	add, free, err := create(ctx, session)
	defer func() { err = errors.Join(err, free()) }()
	if err != nil {
		return c, err
	}
	self, err := session.Group(ctx, "mpi://SELF")
	if err != nil {
		return c, err
	}
	world, err := session.PsetInfo(ctx, "mpi://WORLD")
	if err != nil {
		return c, err
	}
	me, n := self.Members()[0], int64(world.Size)
	for range rounds {
		sum, err := add(ctx, int64(me.Rank))
		if err != nil {
			return c, err
		}
		if want := n * (n - 1) / 2; sum != want {
			return c, fmt.Errorf("the sum of the ranks is %d, not %d", sum, want)
		}
	}
	return costOf(session, me)
}

// overNodes returns an adder over the processes of each node and over the first process of each node.
func overNodes(ctx context.Context, s *mpi.Session) (add adder, free func() error, err error) {
	var comms []*mpi.Comm
	free = func() error { return closeAll(comms) }
	node, err := communicator(ctx, s, "mpix://SHARED")
	if err != nil {
		return nil, free, err
	}
	comms = append(comms, node)
	roots, err := s.PsetInfo(ctx, "mpix://ROOTS")
	if err != nil {
		return nil, free, err
	}
	if !roots.Included {
		return func(ctx context.Context, x int64) (int64, error) { return addOverNodes(ctx, node, nil, x) }, free, nil
	}
	among, err := communicator(ctx, s, "mpix://ROOTS")
	if err != nil {
		return nil, free, err
	}
	comms = append(comms, among)
	return func(ctx context.Context, x int64) (int64, error) { return addOverNodes(ctx, node, among, x) }, free, nil
}

// addOverNodes adds up over the node, then over the roots, and broadcasts the sum over the node. among has the roots, and is
// nil in other processes. The root has rank 0 on its node, because both sets are in the order of the ranks.
func addOverNodes(ctx context.Context, node, among *mpi.Comm, x int64) (int64, error) {
	sum := []int64{x}
	if err := mpi.Allreduce(ctx, node, nil, sum, mpi.Sum[int64]()); err != nil {
		return 0, err
	}
	if among != nil {
		if err := mpi.Allreduce(ctx, among, nil, sum, mpi.Sum[int64]()); err != nil {
			return 0, err
		}
	}
	err := mpi.Bcast(ctx, node, sum, 0)
	return sum[0], err
}

// overWorld returns an adder over all processes.
func overWorld(ctx context.Context, s *mpi.Session) (add adder, free func() error, err error) {
	world, err := communicator(ctx, s, "mpi://WORLD")
	if err != nil {
		return nil, func() error { return nil }, err
	}
	return func(ctx context.Context, x int64) (int64, error) {
		sum := []int64{x}
		err := mpi.Allreduce(ctx, world, nil, sum, mpi.Sum[int64]())
		return sum[0], err
	}, world.Close, nil
}

// communicator makes a communicator of a process set.
func communicator(ctx context.Context, s *mpi.Session, pset string) (*mpi.Comm, error) {
	g, err := s.Group(ctx, pset)
	if err != nil {
		return nil, err
	}
	return mpi.CommFromGroup(ctx, g, "org.example.sparse "+pset)
}

func closeAll(comms []*mpi.Comm) (err error) {
	for _, c := range slices.Backward(comms) {
		err = errors.Join(err, c.Close())
	}
	return err
}
