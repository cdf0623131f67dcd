// Twosessions shows the purpose of sessions. A program and a library in the
// same process both use MPI independently. Their messages
// never match each other, and either may start and end first.
//
//	ferry run -n 2 bin/twosessions
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ferrympi/ferry/mpi"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "twosessions:", err)
		os.Exit(1)
	}
}

// A solver is the library. It opens its own session, without a
// communicator of its caller.
type solver struct {
	session *mpi.Session
	comm    *mpi.Comm
}

func newSolver(ctx context.Context) (*solver, error) {
	session, comm, err := connect(ctx, "org.example.solver")
	if err != nil {
		return nil, err
	}
	return &solver{session, comm}, nil
}

// norm returns the sum of x over all processes.
func (s *solver) norm(ctx context.Context, x int64) (int64, error) {
	sum := make([]int64, 1)
	err := mpi.Allreduce(ctx, s.comm, []int64{x}, sum, mpi.Sum[int64]())
	return sum[0], err
}

func (s *solver) close() error { return errors.Join(s.comm.Close(), s.session.Close()) }

// connect opens a session and a communicator of the world. The tag distinguishes it from communicators that
// are created at the same time.
func connect(ctx context.Context, tag string) (*mpi.Session, *mpi.Comm, error) {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return nil, nil, err
	}
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, nil, errors.Join(err, session.Close())
	}
	comm, err := mpi.CommFromGroup(ctx, world, tag)
	if err != nil {
		return nil, nil, errors.Join(err, session.Close())
	}
	return session, comm, nil
}

func run(ctx context.Context) error {
	session, comm, err := connect(ctx, "org.example.main")
	if err != nil {
		return err
	}
	lib, err := newSolver(ctx)
	if err != nil {
		return err
	}

	// A message of the program is under way while the library works.
	rank, size := comm.Rank(), comm.Size()
	greeting := []int64{int64(rank)}
	request, err := mpi.Isend(comm, greeting, (rank+1)%size, 0)
	if err != nil {
		return err
	}
	sum, err := lib.norm(ctx, int64(rank))
	if err != nil {
		return err
	}
	if want := int64(size * (size - 1) / 2); sum != want {
		return fmt.Errorf("the library's sum is %d, not %d", sum, want)
	}

	// The program's session continues after the library's.
	if err := lib.close(); err != nil {
		return err
	}
	from := make([]int64, 1)
	if _, err := mpi.Recv(ctx, comm, from, (rank+size-1)%size, 0); err != nil {
		return err
	}
	if _, err := request.Wait(ctx); err != nil {
		return err
	}
	fmt.Printf("rank %d: the library's sum is %d, the program's neighbor is %d\n", rank, sum, from[0])
	return errors.Join(comm.Close(), session.Close())
}
