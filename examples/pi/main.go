// Pi integrates 4/(1+x*x) from 0 to 1: each rank adds up its share of the
// intervals, and one reduction brings the shares together on rank 0.
//
//	ferry run -n 4 bin/pi -intervals 100000000
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"

	"github.com/ferrympi/ferry/mpi"
)

func main() {
	intervals := flag.Int("intervals", 10_000_000, "number of intervals")
	flag.Parse()
	if err := run(context.Background(), *intervals); err != nil {
		fmt.Fprintln(os.Stderr, "pi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, intervals int) error {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.pi")
	if err != nil {
		return err
	}
	defer comm.Close()

	// Rank 0 decides how fine it is to be; the others' flags don't count.
	n := []int64{int64(intervals)}
	if err := mpi.Bcast(ctx, comm, n, 0); err != nil {
		return err
	}
	if n[0] < 1 {
		return fmt.Errorf("%d intervals: want at least 1", n[0])
	}

	width := 1 / float64(n[0])
	var sum float64
	for i := int64(comm.Rank()); i < n[0]; i += int64(comm.Size()) {
		x := (float64(i) + 0.5) * width
		sum += 4 / (1 + x*x)
	}
	pi := make([]float64, 1)
	if err := mpi.Reduce(ctx, comm, []float64{sum * width}, pi, mpi.Sum[float64](), 0); err != nil {
		return err
	}
	if comm.Rank() == 0 {
		fmt.Printf("pi is about %.12f, error %.1e\n", pi[0], math.Abs(pi[0]-math.Pi))
	}
	return nil
}
