package main

import (
	"fmt"
	"strconv"
)

// Rows about process failures. The peer is Open MPI with ULFM, from its version 5.

// besideULFM is a figure beside the peers that survive process failures.
func besideULFM(f figure) figure {
	f.networkName = "ULFM"
	return f
}

func agree(ranks int) figure {
	return collective(fmt.Sprintf("agree, %d ranks", ranks), "agree", 0, ranks, 1, 1, "-")
}

// failureFigures are the rows beside the peers.
func failureFigures() []figure {
	const ranks = 4
	recovery := job(fmt.Sprintf("recover: SIGKILL of one of %d ranks to the first barrier of the others", ranks), "recover", ranks, 1, "-")
	recovery.commandLine = func(program string) []string {
		return []string{program, "bench", recovery.BenchName, "-n", strconv.Itoa(ranks), "-i", "1", "-x", "0", "--format", "json"}
	}
	return []figure{besideULFM(agree(2)), besideULFM(agree(8)), besideULFM(recovery)}
}

// failureRows are the rows beside other benchmarks of ferry.
func failureRows() (list []figure) {
	for _, ranks := range []int{2, 8} {
		list = append(list,
			besideOurs(agree(ranks), collective("", "allreduce", 8, ranks, 0, 0, ""), "allreduce of 8 B", 2.5),
			besideOurs(collective(fmt.Sprintf("shrink of a revoked communicator, %d ranks", ranks), "shrink", 0, ranks, 0, 0, ""),
				collective("", "create", 0, ranks, 0, 0, ""), "CommFromGroup", 6))
	}
	return list
}

// besideOurs compares a figure with that of another benchmark of ferry, under the given title, by medians. An interruption of a
// rank would dominate the average of operations of half a microsecond.
func besideOurs(f, other figure, title string, most float64) figure {
	f.usesMedian, other.usesMedian = true, true
	f.Name += ", to " + title
	f.versusVariant, f.wantedBound = &variant{Title: title, rowFigure: &other, commandLine: func(program string) []string { return (&options{}).ours(program, other, nil) }}, bound{AtMost: most}
	return f
}
