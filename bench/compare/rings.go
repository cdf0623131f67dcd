package main

import (
	"fmt"
	"strconv"
	"strings"
)

// Rows of HPCC's rings and of the steps of a start, which the papers measure.

// ring is a figure of `ferry bench ring`. Wanted is the ratio to the better peer.
func ring(order string, ranks int, wanted float64) figure {
	f := collective(fmt.Sprintf("ring of 8 B in %s order, %d ranks", order, ranks), "ring/"+order, 8, ranks, wanted, wanted, "0.7")
	if order == "random" { // Each of ten orders has all iterations.
		f.iterations, f.warmupIterations = f.iterations/10, f.warmupIterations/10
	}
	f.commandLine = func(program string) []string {
		return []string{program, "bench", "ring", "-n", strconv.Itoa(ranks),
			"-i", strconv.Itoa(f.iterations), "-x", strconv.Itoa(f.warmupIterations), "--format", "json"}
	}
	return f
}

// sessions is the name of the peer that has sessions.
const sessions = "mpich"

// startupPrefix begins the names of the figures of `ferry bench startup`.
const startupPrefix = "startup/"

// startup is a figure of `ferry bench startup`, beside the peer that has the same steps.
func startup(what, figureName, unit string, ranks int, wanted float64) figure {
	f := job(fmt.Sprintf("startup: %s, %d ranks", what, ranks), startupPrefix+figureName, ranks, wanted, "0.1")
	f.Unit, f.onlyPeer = unit, sessions
	f.commandLine = func(program string) []string {
		return []string{program, "bench", "startup", "-n", strconv.Itoa(ranks), "--format", "json"}
	}
	return f
}

// paperFigures are the rows beside the peers.
func paperFigures() []figure {
	list := []figure{ring("natural", 2, 0.9), ring("random", 2, 0.9), ring("natural", 8, 0.9), ring("random", 8, 0.9)}
	for _, ranks := range []int{2, 32} {
		list = append(list,
			startup("session to MPI_Session_init", "session/time", "ms", ranks, 0.5),
			startup("mpi://WORLD to MPI_Comm_create_from_group", "world/time", "ms", ranks, 0.5),
			startup("private memory with mpi://WORLD", "world/private", "MiB", ranks, 1))
	}
	return list
}

// isStartup reports whether a figure ends with its initialization.
func (f figure) isStartup() bool {
	return f.BenchName == "hello" || f.BenchName == "init" || strings.HasPrefix(f.BenchName, startupPrefix)
}
