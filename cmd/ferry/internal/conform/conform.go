// Package conform is ferry's conformance suite. It has the requirements of the MPI standard on
// point-to-point and collective communication, communicators, groups and sessions, as cases
// that each return an error. The ranks of a job run it together, by `ferry conform` or
// `ferry matrix`.
//
// It uses the public package mpi only, as any program does.
//
// Cases of the family pset add processes to the job, which run the same program. It calls RunIfAdded before Run.
package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mpi"
)

// Case is one requirement of the standard.
type Case struct {
	Name     string // FAMILY/SUBJECT
	Section  string // Of MPI-4.1; or empty for paper 003, or ulfm.
	MinRanks int    // The case runs on more, too.
	// IsOfProcesses is true for a case about sessions, process sets and the end of a process, which goroutine ranks
	// share with their process.
	IsOfProcesses bool
	// KillsRank is true for a fatal case, which kills the last rank. Later cases run without that rank.
	KillsRank bool
	// AddsProcesses is true for a case that adds processes to the job, up to Room at a time.
	AddsProcesses bool
	// If not empty, all ranks skip the case.
	SkipReason string
	// Run is called by every rank. It is collective over env.Comm, and returns
	// when ctx ends at the latest. An error that wraps kittest.ErrSkip in all ranks skips the case.
	Run func(ctx context.Context, env Env) error
}

// Source is the document behind the case, and its section.
func (c Case) Source() string {
	switch c.Section {
	case "":
		return "paper 003"
	case ulfm:
		return ulfm
	}
	return "MPI-4.1 " + c.Section
}

// Env is the environment of a case.
type Env struct {
	Session *mpi.Session
	// Comm has all ranks, and is used by no other case. The suite closes it.
	Comm *mpi.Comm
	// Die ends the process in a fatal case, without a goodbye. It does not return. nil is SIGKILL.
	Die       func()
	roleStage int // See role.
}

// Status is the outcome of a case.
type Status string

// The outcomes.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	Skip Status = "skip" // See Result.SkipReason.
)

// Result is the outcome of one case, the same in all ranks except for Rank and Err.
type Result struct {
	Case        Case
	Status      Status
	SkipReason  string
	Rank        int // This process or goroutine rank.
	FailedRanks []int
	Err         error // Of this rank.
}

// Limit is the time after which a case counts as hung. The longest cases take a second.
const Limit = 30 * time.Second

// ErrHung is wrapped by the error of a case that did not end within its limit.
var ErrHung = errors.New("hung")

// Within is the context of a case, which ends with ErrHung after limit.
func Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w for %v", ErrHung, limit))
}

// Cases returns all cases, family by family. The fatal ones are the last.
func Cases() []Case {
	return slices.Concat(messageCases(), matchingCases(), requestCases(), partitionedCases(), bufferCases(), communicatorCases(), groupCases(), sessionCases(), psetCases(), collectiveCases(), topologyCases(), persistentCases(), edgeCases(),
		failureCases(), deathCases())
}

// Run runs the cases, one after the other, over a communicator without other
// users. All its processes call it with the same cases. limit is the time limit of a case. A
// rank waits twice as long for the others at the end of a case. Each result is
// reported at once, and failed cases are not an error. After an error the communicator
// cannot be used, and its case has been reported. After a fatal case, the
// other ranks keep their numbers, and run the next cases over a Shrink of the communicator.
func Run(ctx context.Context, s *mpi.Session, world *mpi.Comm, cases []Case, limit time.Duration, report func(Result)) (err error) {
	u := &runner{session: s, liveComm: world, caseLimit: limit}
	for _, c := range cases {
		r, err := u.run(ctx, c)
		if err != nil {
			err = fmt.Errorf("%s: the ranks lost each other: %w", c.Name, err)
			r.Err = errors.Join(r.Err, err)
		}
		report(r)
		if err != nil {
			return err
		}
	}
	if u.isShrunk {
		return u.liveComm.Close()
	}
	return nil
}

// runner runs cases in one rank.
type runner struct {
	session   *mpi.Session
	caseLimit time.Duration
	// Has the live ranks.
	liveComm *mpi.Comm
	// isShrunk is true if liveComm is a Shrink of the caller's communicator.
	isShrunk bool
}

// RunGoroutines is Run on goroutine ranks. Every process of world passes the same number of them, which are
// the ranks of the cases. Cases about processes are skipped. Goroutine ranks call report concurrently.
func RunGoroutines(ctx context.Context, s *mpi.Session, world *mpi.Comm, goroutines int, cases []Case, limit time.Duration, report func(Result)) error {
	cases = slices.Clone(cases)
	for i := range cases {
		if cases[i].IsOfProcesses {
			cases[i].SkipReason = "it is about sessions, process sets or the end of a process, which goroutine ranks share"
		}
	}
	threads, err := mpi.NewThreadComm(ctx, world, goroutines)
	if err != nil {
		return err
	}
	err = threads.Run(ctx, func(ctx context.Context, c *mpi.Comm) error { return Run(ctx, s, c, cases, limit, report) })
	return errors.Join(err, threads.Close())
}

// RunStream is Run on a stream of each process. Communicators that a case derives from its own are on the stream, and
// those that it creates from a group are not.
func RunStream(ctx context.Context, s *mpi.Session, world *mpi.Comm, cases []Case, limit time.Duration, report func(Result)) error {
	stream, err := s.NewStream()
	if err != nil {
		return err
	}
	c, err := world.WithStream(ctx, stream)
	if err != nil {
		return err
	}
	if err := Run(ctx, s, c, cases, limit, report); err != nil {
		return err // Closing may take as long as the case that failed.
	}
	return c.Close()
}

// run runs one case, and shares the outcomes of all ranks. After an error, the result is the outcome in this rank.
func (u *runner) run(ctx context.Context, c Case) (Result, error) {
	r := Result{Case: c, Status: Skip, Rank: u.liveComm.Rank()}
	if r.SkipReason = c.SkipReason; u.liveComm.Size() < c.MinRanks {
		r.SkipReason = fmt.Sprintf("it needs %d ranks", c.MinRanks)
	}
	if r.SkipReason != "" {
		return r, nil
	}
	limited, cancel := Within(ctx, u.caseLimit)
	defer cancel()
	r.Status, r.FailedRanks = Fail, []int{r.Rank}
	comm, err := u.liveComm.Dup(limited)
	if err != nil {
		return r, err
	}
	r.Err = errors.Join(c.Run(limited, Env{Session: u.session, Comm: comm}), comm.Close())
	if errors.Is(r.Err, kittest.ErrSkip) {
		r.SkipReason, r.Err = strings.TrimPrefix(r.Err.Error(), kittest.ErrSkip.Error()+": "), nil
	}
	settle, cancel := Within(ctx, 2*u.caseLimit)
	defer cancel()
	if c.KillsRank {
		if err := u.shrink(settle); err != nil {
			return r, err
		}
	}
	outcomes := make([]byte, u.liveComm.Size())
	outcomes[u.liveComm.Rank()] = outcomeOf(r)
	if err := mpi.Allreduce(settle, u.liveComm, nil, outcomes, mpi.Max[byte]()); err != nil {
		return r, err
	}
	return r.settled(outcomes), nil
}

// shrink replaces the world by one of the live ranks. The last ranks die, so that the others keep their numbers.
func (u *runner) shrink(ctx context.Context) error {
	next, err := u.liveComm.Shrink(ctx)
	if err != nil {
		return err
	}
	if u.isShrunk {
		err = u.liveComm.Close()
	}
	u.liveComm, u.isShrunk = next, true
	return err
}

// The outcomes of a rank.
const (
	passed byte = iota
	skipped
	failed
)

func outcomeOf(r Result) byte {
	switch {
	case r.Err != nil:
		return failed
	case r.SkipReason != "":
		return skipped
	}
	return passed
}

// settled is the result in view of the outcomes of all ranks.
func (r Result) settled(outcomes []byte) Result {
	r.Status, r.FailedRanks = Pass, nil
	for rank, x := range outcomes {
		if x == failed {
			r.FailedRanks = append(r.FailedRanks, rank)
		}
	}
	switch {
	case len(r.FailedRanks) > 0:
		r.Status, r.SkipReason = Fail, ""
	case slices.Contains(outcomes, skipped):
		r.Status = Skip
		if r.SkipReason == "" {
			r.SkipReason = fmt.Sprintf("rank %d skips it", slices.Index(outcomes, skipped))
		}
	}
	return r
}
