// Package mpitest runs the ranks of a job as goroutines of one test. Like a process, each has a
// bootstrap client, an engine and transports. Tests therefore run the code that runs on a
// cluster, except that the ranks share an address space.
//
//	func TestSum(t *testing.T) {
//		mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
//			sum := make([]int, 1)
//			if err := mpi.Allreduce(ctx, c, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
//				return err
//			}
//			if sum[0] != 6 {
//				return fmt.Errorf("the sum is %d", sum[0])
//			}
//			return nil
//		})
//	}
//
// The failure of a rank ends the context of the others. Run reports a rank that hangs with its
// pending operations. When Run returns, all resources of the job are free, or the test has failed.
// Jobs may run concurrently.
//
// A job changes by operations on process sets (mpi.Session.PsetOp) as under ferry run. An
// added rank is another goroutine, which runs the job's function. A rank that leaves returns
// from it. With this job, rank 0 may start up to three more ranks:
//
//	mpitest.Job{Size: 1, MaxRanks: 4}.RunSessions(t, program)
//
// A rank dies by Die, so that a test runs the recovery of its program.
package mpitest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/mpi"
)

// Program is the program of each rank. ctx ends after the time limit, and when another rank fails.
type Program func(ctx context.Context, c *mpi.Comm) error

// Job is the configuration of a job of ranks. The zero value with a Size is right for most tests.
type Job struct {
	// Number of ranks at the start; with Goroutines, of processes.
	Size int
	// MaxRanks is the largest number of ranks at a time, if changes of the job add some; those that leave do not
	// count. 0: Size.
	MaxRanks int
	// Nodes divides the ranks into that many nodes without common memory, as ferry run --nodes does. The nodes have blocks of
	// the first ranks. An added rank gets the node with the fewest ranks. 0: they are on one node.
	Nodes int
	// Grace is the time that a rank has to return after it left by a change, or after its change was undone, which
	// ends its context. A longer stay is a failure. 0: 10 s.
	Grace time.Duration
	// Continue keeps the other ranks running when one fails, as ferry run --on-failure continue does. The failure is
	// the death of a process for them. The error fails the test, unless a finished change has removed the rank.
	// The program closes its communicators and sessions before it returns the error.
	Continue bool
	// Goroutines, if not 0, is the number of goroutine ranks in each rank that run the program of Run. They are
	// the ranks of a thread communicator (mpi.NewThreadComm). The program gets its communicator.
	Goroutines int
	// Params sets parameters in all ranks, as mpi.WithParam does: {"pml": "cm"} runs
	// them over another stack.
	Params map[string]string
	// Options, if not nil, returns further options for the sessions of a rank. The rank's goroutine calls it once.
	Options func(rank int) []mpi.SessionOption
	// Timeout is when a rank counts as hung; 0: 30 s. It is shorter if go test -timeout comes first, so that the report of
	// the hang takes the place of go test's panic.
	Timeout time.Duration
	// Psets are process sets that the launcher would have named.
	Psets []server.Pset
}

// Run runs f as n ranks over a communicator of all, and fails the test if one of them
// fails, hangs or leaves something behind.
func Run(t testing.TB, n int, f Program) { t.Helper(); Job{Size: n}.Run(t, f) }

// Run runs the job like the function Run.
func (j Job) Run(t testing.TB, f Program) {
	t.Helper()
	j.RunSessions(t, func(ctx context.Context) (err error) {
		s, err := Open(ctx)
		if err != nil {
			return err
		}
		defer closed(&err, s.Close)
		world, err := s.Group(ctx, bootstrap.PsetWorld)
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, world, t.Name())
		if err != nil {
			return err
		}
		defer closed(&err, c.Close)
		defer rankOf(ctx).guard(&err)
		if j.Goroutines != 0 {
			return goroutines(ctx, c, j.Goroutines, f)
		}
		return f(ctx, c)
	})
}

// goroutines runs f in n goroutine ranks of a process of c.
func goroutines(ctx context.Context, c *mpi.Comm, n int, f Program) error {
	tc, err := mpi.NewThreadComm(ctx, c, n)
	if err != nil {
		return err
	}
	r := rankOf(ctx)
	err = tc.Run(ctx, func(ctx context.Context, c *mpi.Comm) (err error) {
		err = errGoexit
		defer func() { r.settle(&err, recover(), fmt.Sprintf("goroutine rank %d: ", c.Rank())) }()
		return f(ctx, c)
	})
	return errors.Join(err, tc.Close())
}

// closed calls a Close, which the program may have called before. It sets err to the error of Close if err is
// nil.
func closed(err *error, close func() error) {
	if e := close(); *err == nil && !errors.Is(e, mpi.ErrClosed) {
		*err = e
	}
}

type rankKey struct{}

// rankOf returns the rank of a context.
func rankOf(ctx context.Context) *rank {
	r, ok := ctx.Value(rankKey{}).(*rank)
	if !ok {
		panic("mpitest: the context is not that of a rank")
	}
	return r
}

// Open opens a session of the rank that ctx belongs to, with the job's options followed by more. Programs of RunSessions
// call it instead of mpi.OpenSession.
func Open(ctx context.Context, more ...mpi.SessionOption) (*mpi.Session, error) {
	r := rankOf(ctx)
	s, err := mpi.OpenSession(ctx, append(r.options[:len(r.options):len(r.options)], more...)...)
	if err == nil {
		r.addSession(s)
	}
	return s, err
}

// Client returns the rank's connection with its launcher. It is the job's, which
// closes it.
func Client(ctx context.Context) bootstrap.Client { return rankOf(ctx).client }
