package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// A benchmark is one of the measurements of `ferry bench`.
type benchmark struct {
	name        string
	wantedRanks ranksWanted
	// It measures messages of several sizes.
	hasSizes bool
	// isOfProcesses excludes goroutine ranks, which share the measured resource or lack the operation.
	isOfProcesses bool
	// It adds processes to its job, and removes them.
	isElastic bool

	// measureRow measures one row, after a barrier of all ranks.
	measureRow func(r *rank, ctx context.Context, size int) (Row, error)
	// measureAll measures all sizes in one call, or is nil.
	measureAll func(r *rank, ctx context.Context) error

	osuTitle string // Behind "# ferry VERSION ".
	// Line below the heading about pairs or ranks, or empty.
	osuNote     string
	columnHeads string // May be empty.
}

// ranksWanted is the number of ranks of a benchmark. The default is 2.
type ranksWanted int

const (
	anyRanks    ranksWanted = iota
	several                 // at least 2
	pairs                   // an even number
	pair                    // exactly 2
	pairOrAlone             // 2 ranks, or 1 that sends to itself.
)

// columns formats a heading with the OSU suite's words and column widths, so that programs that read its output
// read this one.
func columns(first int, names ...string) string {
	line := fmt.Sprintf("%-*s", first, names[0])
	for _, name := range names[1:] {
		line += fmt.Sprintf("%18s", name)
	}
	return line
}

var elasticColumns = fmt.Sprintf("%-8s%12s%18s%18s%18s", "# Time", "Processes", "Avg (ms)", "Min (ms)", "Max (ms)")

const averageColumn = "# Avg Latency(us)"

// benchmarks have the order of the lists in messages. init, hello and recover run in
// jobs of their own (see start.go).
var benchmarks = slices.Concat([]benchmark{
	{name: "latency", wantedRanks: pairOrAlone, hasSizes: true, measureRow: (*rank).latency,
		osuTitle: "latency test", columnHeads: columns(10, "# Size", "Latency (us)")},
	{name: "bw", wantedRanks: pairOrAlone, hasSizes: true, measureRow: (*rank).bandwidth,
		osuTitle: "bandwidth test", columnHeads: columns(10, "# Size", "Bandwidth (MB/s)")},
	{name: "bibw", wantedRanks: pair, hasSizes: true, measureRow: (*rank).bidirectional,
		osuTitle: "bi-directional bandwidth test", columnHeads: columns(10, "# Size", "Bandwidth (MB/s)")},
	{name: "mbw_mr", wantedRanks: pairs, hasSizes: true, measureRow: (*rank).rate,
		osuTitle: "multiple bandwidth / message rate test", osuNote: fmt.Sprintf("# [ pairs: %%d ] [ window size: %d ]", window),
		columnHeads: columns(10, "# Size", "MB/s", "Messages/s")},
	{name: "multi_lat", wantedRanks: pairs, hasSizes: true, measureRow: (*rank).multiLatency,
		osuTitle: "multi latency test", osuNote: "# [ pairs: %d ]", columnHeads: columns(10, "# Size", "Latency (us)")},
	{name: "latency_mt", wantedRanks: pair, hasSizes: true, isOfProcesses: true, measureRow: (*rank).latencyThreads,
		osuTitle: "multi-threaded latency test", columnHeads: columns(10, "# Size", "Latency (us)")},
	{name: "any_lat", wantedRanks: several, measureAll: (*rank).anyLatency,
		osuTitle: "latency test, receives from any source", osuNote: "# [ ranks: %d ]", columnHeads: columns(10, "# Size", "Latency (us)")},
	{name: "match", wantedRanks: pair, measureAll: (*rank).matching,
		osuTitle: "matching test: a message behind a queue", columnHeads: fmt.Sprintf("%-28s%10s%18s", "# Queue", "Depth", "Per message (ns)")},
	{name: "isend", wantedRanks: pair, hasSizes: true, measureRow: (*rank).isend,
		osuTitle: "isend test: a receive whose sender computes", columnHeads: columns(10, "# Size", "Receive(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)")},
	{name: "partitioned", wantedRanks: pair, hasSizes: true, measureRow: (*rank).partitioned,
		osuTitle: fmt.Sprintf("partitioned send test: a buffer that %d goroutines fill", mostFilling), columnHeads: columns(10, "# Size", "Partitioned(us)", "Send(us)")},
	{name: "isendrecv", wantedRanks: pair, hasSizes: true, measureRow: (*rank).isendrecv,
		osuTitle: "isendrecv test: an exchange of two ranks", columnHeads: columns(10, "# Size", "Latency (us)")},
	{name: "halo", hasSizes: true, measureRow: (*rank).halo,
		osuTitle: "halo test: a block for each of 4 neighbors", columnHeads: columns(10, "# Size", "Avg Latency(us)")},
	{name: "change", wantedRanks: pair, hasSizes: true, isOfProcesses: true, measureAll: (*rank).changing,
		osuTitle: "latency test, after a change of the machine", columnHeads: fmt.Sprintf("%-12s%10s%18s", "# Change", "Size", "Latency (us)")},
	{name: "ring", wantedRanks: several, isOfProcesses: true, measureAll: (*rank).ring,
		osuTitle: "ring latency test: 8 bytes to both neighbors", columnHeads: columns(10, "# Order", "Latency (us)")},
	{name: "barrier", measureRow: (*rank).barrier, osuTitle: "barrier latency test", columnHeads: averageColumn},
}, collectiveBenchmarks(), []benchmark{
	{name: "dup", measureRow: (*rank).dup, osuTitle: "communicator dup test", columnHeads: averageColumn},
	{name: "create", isOfProcesses: true, measureRow: (*rank).create, osuTitle: "communicator create test", columnHeads: averageColumn},
	{name: "init", isOfProcesses: true, osuTitle: "init test"},
	{name: "startup", isOfProcesses: true, osuTitle: "startup test: session, mpi://SELF, mpi://WORLD", osuNote: "# [ ranks: %d ]",
		columnHeads: fmt.Sprintf("%-20s%6s%18s%18s", "# Step", "Unit", "Avg", "Max")},
	{name: "hello", isOfProcesses: true, osuTitle: "hello test: launch, init and finalize"},
	{name: "grow", isOfProcesses: true, isElastic: true, osuTitle: "grow test: add processes to a job", osuNote: "# [ ranks: %d ]", columnHeads: elasticColumns},
	{name: "agree", measureRow: (*rank).agree, osuTitle: "communicator agree test", columnHeads: averageColumn},
	{name: "shrink", measureRow: (*rank).shrink, osuTitle: "communicator shrink test", columnHeads: averageColumn}, // Or elasticShrink.
	{name: "recover", wantedRanks: several, isOfProcesses: true, osuTitle: "recover test: from the death of a rank to a barrier of the others"},
	{name: "memory", isOfProcesses: true, measureAll: (*rank).memoryOfNeighbours,
		osuTitle: "memory test", osuNote: "# [ ranks: %d ]", columnHeads: columns(20, "# Memory", "Avg (KiB)", "Max (KiB)")},
	{name: "memory_all", isOfProcesses: true, measureAll: (*rank).memoryOfEveryone,
		osuTitle: "memory test", osuNote: "# [ ranks: %d ]", columnHeads: columns(20, "# Memory", "Avg (KiB)", "Max (KiB)")},
	{name: "idle", wantedRanks: several, isOfProcesses: true, measureRow: (*rank).idle,
		osuTitle: "idle test: a rank that is blocked in a ", columnHeads: "# Avg (% of a processor)"},
	{name: "hop", wantedRanks: pair, measureRow: (*rank).hop, columnHeads: "# raw cache-line hop\n# Avg (ns)"},
})

func names() []string {
	var list []string
	for _, b := range benchmarks {
		list = append(list, b.name)
	}
	return list
}

// osuHead is the head of a table in the OSU suite's format. ranks is the number of communicating goroutines where
// they are paired.
func (b benchmark) osuHead(ranks int) (head string) {
	if b.osuTitle != "" {
		head = fmt.Sprintf("# ferry %s %s\n", version.String(), b.osuTitle)
	}
	if b.wantedRanks == pairs {
		ranks /= 2
	}
	if b.osuNote != "" {
		head += fmt.Sprintf(b.osuNote, ranks) + "\n"
	}
	if b.columnHeads != "" {
		head += b.columnHeads + "\n"
	}
	return head
}
