// Survive computes the temperature of a plate, and continues when ranks die. Each rank has a block
// of rows. Every few steps it keeps a checkpoint of its block in memory, with a copy in the memory
// of the next rank, its buddy. After a death the survivors revoke the communicator, shrink it,
// restore the blocks of the dead ranks from the copies, divide the rows among themselves, and
// continue from the checkpoint. Rank 0 compares the result with an uninterrupted run.
//
// Ranks 3 and 5 kill themselves at random steps:
//
//	ferry run -n 8 --tolerate 2 bin/survive -kill 3,5
//
// docs/failures.md explains the program.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/ferrympi/ferry/mpi"
)

// options are the flags.
type options struct {
	// Rows and columns of the plate.
	gridSize int
	// Length of the computation.
	stepCount int
	// In steps.
	checkpointInterval int
	// Of each block, in other ranks.
	copyCount int
	// They kill themselves.
	killedRanks map[int]bool
	// Of the random steps; 0: another seed in each run.
	randomSeed uint64
}

func main() {
	var o options
	flag.IntVar(&o.gridSize, "grid", 128, "number of rows and columns `N` of the plate")
	flag.IntVar(&o.stepCount, "steps", 400, "number of steps")
	flag.IntVar(&o.checkpointInterval, "interval", 20, "steps between checkpoints")
	flag.IntVar(&o.copyCount, "copies", 1, "copies of each block in other ranks; the job survives `K` deaths between two checkpoints")
	flag.Uint64Var(&o.randomSeed, "seed", 0, "seed of the random steps; 0: another one in each run")
	kill := flag.String("kill", "", "`RANKS` that kill themselves at random steps, such as 3,5")
	flag.Parse()
	err := o.parseKill(*kill)
	if err == nil {
		err = run(context.Background(), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "survive:", err)
		os.Exit(1)
	}
}

// parseKill parses a list of ranks.
func (o *options) parseKill(list string) error {
	o.killedRanks = map[int]bool{}
	for text := range strings.SplitSeq(list, ",") {
		if list == "" {
			continue
		}
		rank, err := strconv.Atoi(text)
		if err != nil || rank < 0 {
			return fmt.Errorf("-kill %s: want ranks such as 3,5", list)
		}
		o.killedRanks[rank] = true
	}
	return nil
}

func run(ctx context.Context, o options) error {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.survive")
	if err != nil {
		return err
	}
	defer comm.Close()
	return survive(ctx, comm, o, func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // A process may kill itself.
		select {}
	})
}

// survive runs the computation in a rank of world. Ranks of -kill call die, which does not return.
func survive(ctx context.Context, world *mpi.Comm, o options, die func()) error {
	switch {
	case o.gridSize < world.Size():
		return fmt.Errorf("-grid %d: want at least as many rows as ranks, %d", o.gridSize, world.Size())
	case o.stepCount < 1 || o.checkpointInterval < 1 || o.copyCount < 0:
		return fmt.Errorf("-steps %d -interval %d -copies %d: want at least 1, 1 and 0", o.stepCount, o.checkpointInterval, o.copyCount)
	}
	for rank := range o.killedRanks {
		if rank >= world.Size() {
			return fmt.Errorf("-kill %d: the job has ranks 0 to %d", rank, world.Size()-1)
		}
	}
	m := newMember(world, o)
	defer m.close()
	if o.killedRanks[world.Rank()] {
		m.dieAt, m.dieNow = o.randomStep(world.Rank()), die
	}
	return m.solve(ctx)
}

// randomStep returns the step in which a rank dies.
func (o *options) randomStep(rank int) int {
	if o.randomSeed == 0 {
		return rand.IntN(o.stepCount)
	}
	return rand.New(rand.NewPCG(o.randomSeed, uint64(rank))).IntN(o.stepCount)
}
