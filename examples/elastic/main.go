// Elastic computes on a set of processes that grows, shrinks and survives failures while it
// runs. It is the main loop of "Towards Dynamic Resource Management with MPI Sessions and
// PMIx" (listing 1). In each round all members compute and check a result, and rank 0
// decides whether the members integrate a change. docs/elastic.md explains the loop.
//
// With -to, rank 0 requests the changes:
//
//	ferry run -n 1 --max-ranks 8 bin/elastic -to 8 -rounds 100
//
// With -for, changes come from ferry resize:
//
//	ferry run -n 4 --max-ranks 8 --on-failure continue bin/elastic -for 20s
//
// In both cases, processes that die are replaced.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

type options struct {
	targetSize    int
	wantedChanges int
	isOneChange   bool
	isAsync       bool
	runTime       time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.targetSize, "to", 0, "change from the initial number of processes to `N`, back, and so on, by one process per change")
	flag.IntVar(&o.wantedChanges, "rounds", 10, "with -to: number of changes `R`, with a round of work before each, and one after the last")
	flag.BoolVar(&o.isOneChange, "step", false, "with -to: add or remove all processes in one change")
	flag.BoolVar(&o.isAsync, "async", false, "continue to work while processes start and integrate")
	flag.DurationVar(&o.runTime, "for", 0, "request no change, and take those of ferry resize, for this time")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "elastic:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.targetSize < 0 || o.runTime < 0 || (o.targetSize > 0) == (o.runTime > 0) || o.wantedChanges < 1 {
		return fmt.Errorf("-to %d -rounds %d -for %v: want either -to or -for, and at least 1 round", o.targetSize, o.wantedChanges, o.runTime)
	}
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	m := &member{options: o, session: session, watch: watch{stopWatching: func() {}}}
	defer m.disconnect()

	err = m.join(ctx)
	for {
		switch {
		case err == nil:
			err = m.round(ctx)
		case isFailure(err):
			err = m.recover(ctx)
		case errors.Is(err, errEnds):
			return m.end(ctx)
		case errors.Is(err, errLeaves):
			return nil
		default:
			return err
		}
	}
}

// round works, and takes part in the decision of rank 0. The members then enter an
// integration, or change to its set, after the same round.
func (m *member) round(ctx context.Context) error {
	if err := work(m.watch.aliveCtx, m.comm, m.state.RoundsDone); err != nil {
		return err
	}
	m.state.RoundsDone++
	m.deleteOldSets(ctx)
	var d decision
	var err error
	if m.comm.Rank() == 0 {
		if d, err = m.decide(ctx); err != nil {
			return err
		}
	}
	if d, err = d.broadcast(m.watch.aliveCtx, m.comm); err != nil {
		return err
	}
	switch d.action {
	case doIntegrate:
		return m.integrate(ctx, d.deltaPset)
	case doAdopt:
		return m.awaitIntegration(ctx)
	case doEnd:
		return errEnds
	}
	return nil
}

// end waits until all members have received the decision. From here on, ends of members are no
// failures.
func (m *member) end(ctx context.Context) error {
	m.watch.stopWatching()
	rank := m.comm.Rank()
	if err := mpi.Barrier(ctx, m.comm); err != nil && !isFailure(err) {
		return err
	}
	if rank == 0 {
		fmt.Printf("ok: %d rounds and %d changes, %d processes at the end\n", m.state.RoundsDone, m.state.ChangeCount, m.comm.Size())
	}
	return nil
}
