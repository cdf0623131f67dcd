package main

import (
	"fmt"
	"strconv"
	"strings"
)

// Rows about jobs that grow and shrink while they run. The peers add processes by MPI_Comm_spawn and
// MPI_Intercomm_merge.

// firstRanks is the number of ranks before processes are added.
const firstRanks = 2

// elastic is a figure of `ferry bench grow` or shrink.
func elastic(name, bench string, added int, flags ...string) figure {
	f := figure{Name: name, BenchName: bench, MessageBytes: added, Ranks: firstRanks, addedProcesses: added, Unit: "ms", LowerIsBetter: true, loop: loop{iterations: 3, warmupIterations: 1}}
	f.commandLine = func(program string) []string {
		family, _, _ := strings.Cut(bench, "/")
		args := []string{program, "bench", family, "-n", strconv.Itoa(firstRanks), "--add", strconv.Itoa(added),
			"-i", strconv.Itoa(f.iterations), "-x", strconv.Itoa(f.warmupIterations), "--format", "json"}
		return append(args, flags...)
	}
	return f
}

// grown is the figure of added processes.
func grown(added int) figure {
	return elastic(fmt.Sprintf("grow: add %d processes to %d", added, firstRanks), "grow/total", added)
}

// elasticFigures are the rows beside the peers. MPICH 4.0.2 adds no processes (mpich#6797), so that the rows
// under Hydra and mpirun are both beside Open MPI under mpirun.
func elasticFigures() (list []figure) {
	for _, added := range []int{4, 8} {
		total := grown(added)
		total.WantedDefault, total.WantedBest, total.Aim = 0.3, 0.3, "0.1"
		calls := elastic(total.Name+", inside calls with --async", "grow/calls", added, "--async")
		calls.WantedDefault, calls.WantedBest, calls.Aim = 0.15, 0.15, "0.05"
		list = append(list, total, calls)
	}
	under := grown(4)
	under.WantedDefault, under.WantedBest, under.Aim = 0.5, 0.5, "0.3"
	return append(list, underLauncher(under, "mpirun", "openmpi"), underAnother(under, "Hydra", "mpich", "openmpi"))
}

// elasticRows are the rows beside other jobs of ferry.
func elasticRows() (list []figure) {
	for _, added := range []int{4, 8} {
		hello := figure{BenchName: "hello", Ranks: added, Unit: "ms", LowerIsBetter: true}
		hello.commandLine = func(program string) []string {
			return []string{program, "bench", "hello", "-n", strconv.Itoa(added), "-i", "3", "-x", "1", "--format", "json"}
		}
		f := grown(added)
		f.versusVariant, f.wantedBound = &variant{Title: fmt.Sprintf("a job of %d ranks", added), commandLine: hello.commandLine, rowFigure: &hello}, bound{AtMost: 1.5}
		f.Name += ", to a job of as many ranks"
		list = append(list, f)
	}
	const removed = 8
	f, adding := elastic(fmt.Sprintf("shrink: remove %d of %d processes, to adding them", removed, firstRanks+removed), "shrink/total", removed), grown(removed)
	f.versusVariant, f.wantedBound = &variant{Title: "adding them", commandLine: adding.commandLine, rowFigure: &adding}, bound{AtMost: 0.3}
	return append(list, f)
}
