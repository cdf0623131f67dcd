// Package conform is ferry's conformance suite: what the MPI standard says of
// point-to-point communication, communicators, groups and sessions, as cases
// that each return an error. Ranks of a job run it together; `ferry conform` and
// `ferry matrix` are ways to start it.
//
// It uses the public package mpi only, as any program does.
package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// Case is one thing that the standard says.
type Case struct {
	Name    string // family/what is shown
	Section string // of MPI-4.1
	Ranks   int    // the fewest it needs; it runs on more, too
	// Run is called by every rank. It is collective over env.Comm, and returns
	// when ctx ends at the latest.
	Run func(ctx context.Context, env Env) error
}

// Env is what a case works with.
type Env struct {
	Session *mpi.Session
	// Comm has all ranks, and is used by no other case. The suite closes it.
	Comm *mpi.Comm
}

// Status is what became of a case.
type Status string

// The outcomes.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	Skip Status = "skip" // there are too few ranks
)

// Result is the outcome of one case, the same in all ranks except for Rank and Err.
type Result struct {
	Case    Case
	Status  Status
	Rank    int   // this process
	Ranks   []int // that failed
	Err     error // of this rank
	Elapsed time.Duration
}

// caseLimit is when a case counts as hung: the longest take a second.
const caseLimit = 30 * time.Second

// Cases returns all cases, family by family.
func Cases() []Case {
	return slices.Concat(messageCases(), matchingCases(), requestCases(), persistentCases(), layoutCases(), communicatorCases(), groupCases(), sessionCases())
}

// Run runs the cases, one after the other, with all processes of mpi://WORLD,
// which all call it with the same cases, in a session that is opened with opts. Each
// result is reported as it comes. The error says that the suite itself could not go
// on; cases that fail are no error.
func Run(ctx context.Context, cases []Case, report func(Result), opts ...mpi.SessionOption) error {
	s, err := mpi.OpenSession(ctx, opts...)
	if err != nil {
		return err
	}
	all, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	world, err := mpi.CommFromGroup(ctx, all, "ferry.conform")
	if err != nil {
		return err
	}
	for _, c := range cases {
		r, err := runCase(ctx, s, world, c)
		if err != nil {
			return fmt.Errorf("%s: the ranks lost each other: %w", c.Name, err)
		}
		report(r)
	}
	return errors.Join(world.Close(), s.Close())
}

// runCase runs one case and has all ranks know who failed.
func runCase(ctx context.Context, s *mpi.Session, world *mpi.Comm, c Case) (Result, error) {
	r := Result{Case: c, Status: Skip, Rank: world.Rank()}
	if world.Size() < c.Ranks {
		return r, nil
	}
	comm, err := world.Dup(ctx)
	if err != nil {
		return r, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, caseLimit, fmt.Errorf("hung for %v", caseLimit))
	start := time.Now()
	r.Err = c.Run(limited, Env{s, comm})
	r.Elapsed = time.Since(start)
	cancel()
	r.Err = errors.Join(r.Err, comm.Close())
	failed := make([]byte, world.Size())
	if r.Err != nil {
		failed[world.Rank()] = 1
	}
	if err := mpi.Allreduce(ctx, world, nil, failed, mpi.Max[byte]()); err != nil {
		return r, err
	}
	r.Status = Pass
	for rank, x := range failed {
		if x != 0 {
			r.Status = Fail
			r.Ranks = append(r.Ranks, rank)
		}
	}
	return r, nil
}
