// Hello opens a session, creates a communicator of all processes of the job, and
// prints its rank.
//
//	ferry run -n 4 bin/hello
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ferrympi/ferry/mpi"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.hello")
	if err != nil {
		return err
	}
	defer comm.Close()

	fmt.Printf("hello from rank %d of %d\n", comm.Rank(), comm.Size())
	return mpi.Barrier(ctx, comm)
}
