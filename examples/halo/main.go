// Halo runs a 27-point stencil on a periodic grid that is divided among the ranks. Each step exchanges the cells
// around a rank's block with 26 neighbors, by one persistent collective over a graph (MPI-4.1 sections 8.5.4 and 8.8).
// Each rank compares its block with a serial run.
//
//	ferry run -n 8 bin/halo -n 16 -steps 10
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/ferrympi/ferry/mpi"
)

var (
	edge  = flag.Int("n", 12, "cells of a rank's block in each dimension")
	steps = flag.Int("steps", 5, "number of steps")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "halo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	if *edge < 1 || *steps < 0 {
		return fmt.Errorf("-n %d -steps %d; pass at least one cell, and no negative number of steps", *edge, *steps)
	}
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.halo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	return stencil(ctx, comm)
}

// stencil runs the steps on the grid of all ranks, and checks the result.
func stencil(ctx context.Context, comm *mpi.Comm) error {
	dims, err := mpi.Dims(comm.Size(), 0, 0, 0)
	if err != nil {
		return err
	}
	cart, err := mpi.NewCart(ctx, comm, dims, []bool{true, true, true}, true)
	if err != nil {
		return err
	}
	defer func() { _ = cart.Comm().Close() }()
	h, err := newHalo(ctx, cart, *edge)
	if err != nil {
		return err
	}
	defer h.close()
	b, at := newBlock(*edge), h.coords
	b.each(func(x, y, z int) { b.set(x, y, z, initial(at[0]**edge+x, at[1]**edge+y, at[2]**edge+z)) })
	for range *steps {
		if err := h.exchange(ctx, b); err != nil {
			return err
		}
		b = b.step()
	}
	wrong := []int{compare(b, dims, at)}
	if err := mpi.Allreduce(ctx, cart.Comm(), nil, wrong, mpi.Sum[int]()); err != nil {
		return err
	}
	if wrong[0] != 0 {
		return fmt.Errorf("%d cells differ from the serial run", wrong[0])
	}
	if cart.Comm().Rank() == 0 {
		fmt.Printf("ok: %d steps on a grid of %v ranks with %d cells each are those of a serial run\n", *steps, dims, *edge**edge**edge)
	}
	return nil
}

// compare returns the number of cells that differ from a serial run.
func compare(b *block, dims, at []int) (wrong int) {
	n := b.size[0]
	whole := &block{size: [3]int{dims[0] * n, dims[1] * n, dims[2] * n}}
	whole.cells = make([]uint32, (whole.size[0]+2)*(whole.size[1]+2)*(whole.size[2]+2))
	whole.each(func(x, y, z int) { whole.set(x, y, z, initial(x, y, z)) })
	for range *steps {
		whole.wrap()
		whole = whole.step()
	}
	b.each(func(x, y, z int) {
		if b.get(x, y, z) != whole.get(at[0]*n+x, at[1]*n+y, at[2]*n+z) {
			wrong++
		}
	})
	return wrong
}

// initial is the value of a cell of the whole grid before the first step.
func initial(x, y, z int) uint32 { return uint32(x*7919 + y*104729 + z*1299709 + x*y*z + 1) }
