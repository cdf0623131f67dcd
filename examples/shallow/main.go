// Shallow computes the waves of a water column that collapses in a square basin. It continues with the
// same result when processes are added, removed or replaced, and when they die.
//
// The shallow water equations are solved by a finite volume scheme on a grid of cells. Fluxes between cells
// are those of Lax and Friedrichs with the largest wave speed of the grid, and the steps are explicit Euler
// steps with a Courant number of 0.45. The scheme is of first order, conserves the mass, and keeps the
// depth positive. The basin has walls that reflect the waves. Each rank has a block of consecutive rows.
// In each step neighbors exchange one row, and all ranks agree on the length of the step.
//
// Every -every steps each rank copies its rows to the next rank. After a death the other ranks divide the rows of
// the last copy among themselves, and rank 0 requests processes in place of the dead ones. A change of
// the job takes place after the same step in all ranks.
//
//	ferry run -n 4 --max-ranks 8 --on-failure continue bin/shallow -grid 512 -steps 2000 & J=$!
//	ferry resize $J --add 4
//	ferry resize $J --sub 6
//	kill -9 PID
//
// Each operation rounds as it is written, and no sum depends on the number of ranks. So the checksum is the same on
// any number of ranks, after any changes, and on any machine. docs/elastic.md explains the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ferrympi/ferry/mpi"
)

// options are the flags.
type options struct {
	// Rows and columns.
	gridSize  int
	stepCount int
	// In steps.
	checkpointInterval int
	// output receives a line from rank 0 for each change of the number of ranks.
	output io.Writer
	// disturb is called before each step and in each phase. Tests set it. Otherwise nil.
	disturb func(ctx context.Context, m *member, at point)
}

func main() {
	o := options{output: os.Stdout}
	flag.IntVar(&o.gridSize, "grid", 256, "number of rows and columns `N` of the grid")
	flag.IntVar(&o.stepCount, "steps", 500, "number of steps")
	flag.IntVar(&o.checkpointInterval, "every", 20, "steps between checkpoints; changes of the job take place there")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "shallow:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.gridSize < 2 || o.stepCount < 0 || o.checkpointInterval < 1 {
		return fmt.Errorf("-grid %d -steps %d -every %d: want at least 2, 0 and 1", o.gridSize, o.stepCount, o.checkpointInterval)
	}
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	result, err := solve(ctx, session, o)
	if result != nil {
		fmt.Println(result)
	}
	return err
}

// solve computes all steps in a rank of the job. It returns the result in rank 0, and nil in other ranks and in a
// process that leaves. The caller closes the session.
func solve(ctx context.Context, session *mpi.Session, o options) (*result, error) {
	m := &member{options: o, session: session, basin: newBasin(o.gridSize)}
	defer m.disconnect()
	err := m.join(ctx)
	for err == nil && m.finalResult == nil {
		err = m.runPhase(ctx)
	}
	if errors.Is(err, errLeaves) {
		return nil, nil
	}
	if err != nil || m.comm.Rank() != 0 {
		return nil, err
	}
	return m.finalResult, m.finalResult.check()
}
