// Package conform is ferry's conformance suite: what the MPI standard says of
// point-to-point and collective communication, communicators, groups and sessions, as cases
// that each return an error. Ranks of a job run it together; `ferry conform` and
// `ferry matrix` are ways to start it.
//
// It uses the public package mpi only, as any program does.
package conform

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
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
	Case   Case
	Status Status
	Rank   int   // this process
	Ranks  []int // that failed
	Err    error // of this rank
}

// Limit is when a case can be taken to hang: the longest take a second.
const Limit = 30 * time.Second

// ErrHung is wrapped by the error of a case that did not end within its limit.
var ErrHung = errors.New("hung")

// Within is the context of a case, which ends with ErrHung after limit.
func Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w for %v", ErrHung, limit))
}

// Cases returns all cases, family by family.
func Cases() []Case {
	return slices.Concat(messageCases(), matchingCases(), requestCases(), bufferCases(), communicatorCases(), groupCases(), sessionCases(), collectiveCases(), edgeCases())
}

// Run runs the cases, one after the other, over a communicator that nobody else
// uses; its processes all call it with the same cases. Each case may take limit; a
// rank whose case has ended waits twice as long for the others. Each result is
// reported as it comes; cases that fail are no error. After an error the communicator
// is of no use any more; the case over which it came was reported.
func Run(ctx context.Context, s *mpi.Session, world *mpi.Comm, cases []Case, limit time.Duration, report func(Result)) error {
	for _, c := range cases {
		r, err := runCase(ctx, s, world, c, limit)
		if err != nil {
			err = fmt.Errorf("%s: the ranks lost each other: %w", c.Name, err)
			r.Err = errors.Join(r.Err, err)
		}
		report(r)
		if err != nil {
			return err
		}
	}
	return nil
}

// runCase runs one case and has all ranks know who failed. An error says that they
// can't: what is known is the outcome in this rank.
func runCase(ctx context.Context, s *mpi.Session, world *mpi.Comm, c Case, limit time.Duration) (Result, error) {
	r := Result{Case: c, Status: Skip, Rank: world.Rank()}
	if world.Size() < c.Ranks {
		return r, nil
	}
	limited, cancel := Within(ctx, limit)
	defer cancel()
	r.Status, r.Ranks = Fail, []int{r.Rank}
	comm, err := world.Dup(limited)
	if err != nil {
		return r, err
	}
	r.Err = errors.Join(c.Run(limited, Env{s, comm}), comm.Close())
	failed := make([]byte, world.Size())
	if r.Err != nil {
		failed[world.Rank()] = 1
	}
	settle, cancel := Within(ctx, 2*limit)
	defer cancel()
	if err := mpi.Allreduce(settle, world, nil, failed, mpi.Max[byte]()); err != nil {
		return r, err
	}
	r.Status, r.Ranks = Pass, nil
	for rank, x := range failed {
		if x != 0 {
			r.Status = Fail
			r.Ranks = append(r.Ranks, rank)
		}
	}
	return r, nil
}

// Command returns `ferry conform`, which runs the suite as one of the ranks of a
// job. It is hidden: `ferry matrix` is made of it.
func Command() *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use:     "conform",
		Short:   "Run the conformance suite as a rank",
		Example: "  ferry run -n 4 ferry conform --only '^communicator/'",
		Hidden:  true,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&only, "only", "", "run the cases whose names match `REGEXP`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		match, err := regexp.Compile(only)
		if err != nil {
			return exit.Usagef("--only: %w", err)
		}
		cases := slices.DeleteFunc(Cases(), func(c Case) bool { return !match.MatchString(c.Name) })
		if len(cases) == 0 {
			return exit.Usagef("--only %s: no case has such a name", only)
		}
		return run(cmd, cases)
	}
	return cmd
}

// run runs the cases. Rank 0 prints the outcomes, and every rank what it failed with.
func run(cmd *cobra.Command, cases []Case) error {
	out, failed := cmd.OutOrStdout(), 0
	session, world, done, err := settings.Join(cmd.Context(), "ferry.conform")
	if err != nil {
		return err
	}
	err = Run(cmd.Context(), session, world, cases, Limit, func(r Result) {
		if r.Status == Fail {
			failed++
		}
		if r.Rank == 0 {
			line := fmt.Sprintf("%-4s  %-60s  MPI-4.1 %s", r.Status, r.Case.Name, r.Case.Section)
			if r.Status == Fail {
				line += fmt.Sprintf("  failed in ranks %v", r.Ranks)
			}
			fmt.Fprintln(out, line)
		}
		if r.Err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "rank %d: %s: %v\n", r.Rank, r.Case.Name, r.Err)
		}
	})
	if err == nil { // else to close may take as long as what has failed
		err = done()
	}
	if err == nil && failed > 0 {
		err = exit.Status(exit.Failed) // the lines have said why
	}
	return err
}
