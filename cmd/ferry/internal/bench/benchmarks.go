package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// A benchmark is one of the measurements of `ferry bench`.
type benchmark struct {
	name  string
	takes ranksWanted
	// It measures messages of several sizes.
	hasSizes bool
	// isOfProcesses excludes goroutine ranks, which share the measured resource or lack the operation.
	isOfProcesses bool
	// It adds processes to its job, and removes them.
	isElastic bool

	// each measures one row, after a barrier of all ranks.
	each func(r *rank, ctx context.Context, size int) (Row, error)
	// whole measures all sizes in one call, or is nil.
	whole func(r *rank, ctx context.Context) error

	test string // title in the OSU suite's format, behind "# ferry VERSION "
	// Line below the heading about pairs or ranks, or empty.
	note    string
	columns string // names of the columns, if any
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
	{name: "latency", takes: pairOrAlone, hasSizes: true, each: (*rank).latency,
		test: "latency test", columns: columns(10, "# Size", "Latency (us)")},
	{name: "bw", takes: pairOrAlone, hasSizes: true, each: (*rank).bandwidth,
		test: "bandwidth test", columns: columns(10, "# Size", "Bandwidth (MB/s)")},
	{name: "bibw", takes: pair, hasSizes: true, each: (*rank).bidirectional,
		test: "bi-directional bandwidth test", columns: columns(10, "# Size", "Bandwidth (MB/s)")},
	{name: "mbw_mr", takes: pairs, hasSizes: true, each: (*rank).rate,
		test: "multiple bandwidth / message rate test", note: fmt.Sprintf("# [ pairs: %%d ] [ window size: %d ]", window),
		columns: columns(10, "# Size", "MB/s", "Messages/s")},
	{name: "multi_lat", takes: pairs, hasSizes: true, each: (*rank).multiLatency,
		test: "multi latency test", note: "# [ pairs: %d ]", columns: columns(10, "# Size", "Latency (us)")},
	{name: "latency_mt", takes: pair, hasSizes: true, isOfProcesses: true, each: (*rank).latencyThreads,
		test: "multi-threaded latency test", columns: columns(10, "# Size", "Latency (us)")},
	{name: "any_lat", takes: several, whole: (*rank).anyLatency,
		test: "latency test, receives from any source", note: "# [ ranks: %d ]", columns: columns(10, "# Size", "Latency (us)")},
	{name: "match", takes: pair, whole: (*rank).matching,
		test: "matching test: a message behind a queue", columns: fmt.Sprintf("%-28s%10s%18s", "# Queue", "Depth", "Per message (ns)")},
	{name: "isend", takes: pair, hasSizes: true, each: (*rank).isend,
		test: "isend test: a receive whose sender computes", columns: columns(10, "# Size", "Receive(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)")},
	{name: "partitioned", takes: pair, hasSizes: true, each: (*rank).partitioned,
		test: fmt.Sprintf("partitioned send test: a buffer that %d goroutines fill", mostFilling), columns: columns(10, "# Size", "Partitioned(us)", "Send(us)")},
	{name: "isendrecv", takes: pair, hasSizes: true, each: (*rank).isendrecv,
		test: "isendrecv test: an exchange of two ranks", columns: columns(10, "# Size", "Latency (us)")},
	{name: "halo", hasSizes: true, each: (*rank).halo,
		test: "halo test: a block for each of 4 neighbors", columns: columns(10, "# Size", "Avg Latency(us)")},
	{name: "change", takes: pair, hasSizes: true, isOfProcesses: true, whole: (*rank).changing,
		test: "latency test, after a change of the machine", columns: fmt.Sprintf("%-12s%10s%18s", "# Change", "Size", "Latency (us)")},
	{name: "ring", takes: several, isOfProcesses: true, whole: (*rank).ring,
		test: "ring latency test: 8 bytes to both neighbors", columns: columns(10, "# Order", "Latency (us)")},
	{name: "barrier", each: (*rank).barrier, test: "barrier latency test", columns: averageColumn},
}, collectiveBenchmarks(), []benchmark{
	{name: "dup", each: (*rank).dup, test: "communicator dup test", columns: averageColumn},
	{name: "create", isOfProcesses: true, each: (*rank).create, test: "communicator create test", columns: averageColumn},
	{name: "init", isOfProcesses: true, test: "init test"},
	{name: "startup", isOfProcesses: true, test: "startup test: session, mpi://SELF, mpi://WORLD", note: "# [ ranks: %d ]",
		columns: fmt.Sprintf("%-20s%6s%18s%18s", "# Step", "Unit", "Avg", "Max")},
	{name: "hello", isOfProcesses: true, test: "hello test: launch, init and finalize"},
	{name: "grow", isOfProcesses: true, isElastic: true, test: "grow test: add processes to a job", note: "# [ ranks: %d ]", columns: elasticColumns},
	{name: "agree", each: (*rank).agree, test: "communicator agree test", columns: averageColumn},
	{name: "shrink", each: (*rank).shrink, test: "communicator shrink test", columns: averageColumn}, // Or elasticShrink.
	{name: "recover", takes: several, isOfProcesses: true, test: "recover test: from the death of a rank to a barrier of the others"},
	{name: "memory", isOfProcesses: true, whole: (*rank).memoryOfNeighbours,
		test: "memory test", note: "# [ ranks: %d ]", columns: columns(20, "# Memory", "Avg (KiB)", "Max (KiB)")},
	{name: "memory_all", isOfProcesses: true, whole: (*rank).memoryOfEveryone,
		test: "memory test", note: "# [ ranks: %d ]", columns: columns(20, "# Memory", "Avg (KiB)", "Max (KiB)")},
	{name: "idle", takes: several, isOfProcesses: true, each: (*rank).idle,
		test: "idle test: a rank that is blocked in a ", columns: "# Avg (% of a processor)"},
	{name: "hop", takes: pair, each: (*rank).hop, columns: "# raw cache-line hop\n# Avg (ns)"},
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
	if b.test != "" {
		head = fmt.Sprintf("# ferry %s %s\n", version.String(), b.test)
	}
	if b.takes == pairs {
		ranks /= 2
	}
	if b.note != "" {
		head += fmt.Sprintf(b.note, ranks) + "\n"
	}
	if b.columns != "" {
		head += b.columns + "\n"
	}
	return head
}
