// Spmv multiplies the sparse matrix of the 27-point stencil on a cube of N^3
// rows with a vector, again and again. The rows are split over the ranks in
// contiguous slabs; before each product neighbors exchange the borders of the
// vector, and the inner rows are computed while those are under way. Rank 0
// compares the last product with the serial one.
//
//	ferry run -n 4 bin/spmv -cube 64 -iterations 100
//
// With -goroutines M each process is M ranks, which are goroutines of a thread communicator:
//
//	ferry run -n 2 bin/spmv -goroutines 2 -cube 64
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

func main() {
	cube := flag.Int("cube", 64, "length N of the cube's edge; the matrix has N^3 rows")
	iterations := flag.Int("iterations", 100, "number of products")
	goroutines := flag.Int("goroutines", 0, "goroutine ranks `M` of each process; 0: the process is the rank")
	flag.Parse()
	if err := run(context.Background(), *cube, *iterations, *goroutines); err != nil {
		fmt.Fprintln(os.Stderr, "spmv:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cube, iterations, goroutines int) error {
	if cube < 1 || cube > maxCube || iterations < 1 {
		return fmt.Errorf("-cube %d -iterations %d: want 1 to %d, and at least 1", cube, iterations, maxCube)
	}
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.spmv")
	if err != nil {
		return err
	}
	defer comm.Close()
	if goroutines == 0 {
		return products(ctx, comm, cube, iterations)
	}
	threads, err := mpi.NewThreadComm(ctx, comm, goroutines)
	if err != nil {
		return fmt.Errorf("-goroutines %d: %w", goroutines, err)
	}
	defer threads.Close()
	return threads.Run(ctx, func(ctx context.Context, comm *mpi.Comm) error { return products(ctx, comm, cube, iterations) })
}

// products computes and checks as one rank of comm.
func products(ctx context.Context, comm *mpi.Comm, cube, iterations int) error {
	m := newMatrix(cube, comm.Rank(), comm.Size())
	h := newHalo(m, comm)
	x, y := m.vector(), m.vector()
	m.fill(x)

	if err := mpi.Barrier(ctx, comm); err != nil {
		return err
	}
	show := newProgress(comm.Rank() == 0, iterations)
	start := time.Now()
	for i := range iterations {
		if i > 0 {
			x, y = y, x // the last result is the next operand
		}
		if err := h.start(x); err != nil {
			return err
		}
		m.multiply(y, x, m.innerRows.first, m.innerRows.end)
		if err := h.wait(ctx); err != nil {
			return err
		}
		m.multiply(y, x, m.ownRows.first, m.innerRows.first)
		m.multiply(y, x, m.innerRows.end, m.ownRows.end)
		show(i + 1)
	}
	if err := mpi.Barrier(ctx, comm); err != nil {
		return err
	}
	elapsed := time.Since(start)

	worst, err := check(ctx, comm, m, x, y)
	if err != nil || comm.Rank() != 0 {
		return err
	}
	flops := 2 * float64(nonzeros(cube)) * float64(iterations)
	fmt.Printf("spmv: %d rows, %d nonzeros, %d iterations in %.3f s: %.2f GFLOP/s\n",
		cube*cube*cube, nonzeros(cube), iterations, elapsed.Seconds(), flops/elapsed.Seconds()/1e9)
	return verdict(os.Stdout, comm.Size(), worst)
}

// verdict prints that the product is right, or returns an error.
func verdict(w io.Writer, ranks int, worst float64) error {
	if worst > tolerance {
		return fmt.Errorf("check failed: a row differs from the serial product by %.1e", worst)
	}
	_, err := fmt.Fprintf(w, "ok: spmv on %d ranks agrees with the serial product (largest difference %.1e)\n", ranks, worst)
	return err
}

// tolerance allows for a processor that fuses multiply and add in one of the
// two products; values are of the order of 1.
const tolerance = 1e-12

// check gathers the operand x and the result y of the last product on rank 0,
// does the product again there, and returns the largest difference of a row.
func check(ctx context.Context, comm *mpi.Comm, m *matrix, x, y []float64) (float64, error) {
	if comm.Rank() != 0 {
		return 0, errors.Join(
			mpi.Send(ctx, comm, m.part(x, m.ownRows), 0, 0),
			mpi.Send(ctx, comm, m.part(y, m.ownRows), 0, 1))
	}
	rows := m.cubeSize * m.cubeSize * m.cubeSize
	allX, allY := make([]float64, rows), make([]float64, rows)
	copy(allX, m.part(x, m.ownRows))
	copy(allY, m.part(y, m.ownRows))
	for r := 1; r < comm.Size(); r++ {
		theirs := ownedBy(rows, r, comm.Size())
		if _, err := mpi.Recv(ctx, comm, allX[theirs.first:theirs.end], r, 0); err != nil {
			return 0, err
		}
		if _, err := mpi.Recv(ctx, comm, allY[theirs.first:theirs.end], r, 1); err != nil {
			return 0, err
		}
	}
	return largestDifference(m.cubeSize, allX, allY), nil
}
