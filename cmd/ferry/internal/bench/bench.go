// Package bench implements `ferry bench`, micro-benchmarks with the loops of the OSU
// suite, so that figures compare with those of other MPIs. It starts its ranks, bound to
// cores. Under a launcher it is a rank.
//
// The loops use the public package as a program does. Every row has
// the raw hop: the time of one cache line from rank 0 to rank 1. It is the larger of the
// values before and after the row, and absent if ranks share a
// processor.
package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/framework"
)

var long = `Measure ferry on this machine.

  latency   one way of a message, half of a ping-pong's round trip; with -n 1, what a
            message takes that a rank sends to itself
            with --live or --alloc, beside garbage collection: each message is timed
            by itself, with the longest time, and the times that 1 of 1,000 and of
            10,000 exceed
  bw        bandwidth of windows of 64 messages, each window acknowledged; with -n 1, of
            a rank to itself
  bibw      bandwidth of windows of 64 messages each way at the same time
  mbw_mr    message rate: pairs of ranks, windows of 64 messages
            with --threads, pairs of goroutines, --threads of each rank, each pair on a
            dup of the communicator or, with --streams, on a stream of its own; the rate
            counts the time from the first goroutine's start to the last one's end
  multi_lat one way of a message, several pairs of ranks at once
  latency_mt
            one way of a message between 2 ranks with --threads goroutines each, which
            send at once, each pair with a tag of its own
  any_lat   one way of a message, where rank 0 receives from any source, and
            --connected ranks have connected to it, although only rank 1 sends;
            latency --connected is the same with a receive from rank 1
  match     what a message of 8 bytes costs with --depth others in the queue of
            posted receives or of unexpected messages: in the same order, in
            reverse, in random order, and with receives from any source
  isend     a receive whose sender computes for 20 ms between Isend and Wait; Overlap says
            how much of that time the receiver did not have to wait for
  partitioned
            a buffer that 4 goroutines fill, from the start until an empty message of the
            receiver: as a partitioned send, and as a Send after the last goroutine
  isendrecv an exchange of messages by Isendrecv
            with --isend-irecv by Isend and Irecv
  halo      an exchange with the 4 neighbors in a periodic grid of all ranks, by NeighborAlltoall
            with --persistent by NeighborAlltoallInit, with --isend-irecv by Isend and Irecv
  change    one way of a message, from 200 messages after the machine has changed: both
            ranks have moved to the other's processor (--to swapped), or another process
            works on the processor of rank 1 (--to neighbour)
  barrier   a barrier of all ranks
` + describeCollectives() + `  ibcast    and so on, also ibarrier: the nonblocking form. Between start and wait each
            rank computes for as long as the operation takes alone; Overlap is the
            share of the operation that the computation hides
            bcast --persistent and so on: Start and Wait of a persistent operation
  dup       make a communicator with the same members
  create    make a communicator from the group of all ranks
  ring      one way of 8 bytes in a ring, where each rank sends to both neighbors: in the order
            of the ranks (natural), and in 10 random orders (random), as HPCC does
  init      open a session and make the first communicator
  startup   the time to open a session, and to make a communicator of mpi://SELF and one of
            mpi://WORLD, separately; after each, the private memory of a rank, its
            proportional share (pss), and all of the node's /dev/shm
  hello     a whole job: start, session, communicator, end
  grow      a change that adds --add processes to -n ranks: the time from the request
            until rank 0 gets a message back that it sent round the new communicator
            (total), and the longest time of a rank inside calls (calls), to which
            computation with --async does not count
  shrink    make a communicator of the live members of one that rank 0 has revoked;
            with --add or --async, a change that removes --add processes, so that -n ranks
            remain: the same times as of grow
  agree     an agreement of all ranks, none of which has failed
  recover   a whole job of 4 ranks, of which rank 0 kills the last one: the time from then
            until the last of the others leaves its first barrier on the shrunk communicator
  memory    memory of a rank after a barrier and a message to each neighbor:
            private, its proportional share of everything (pss), and all of the
            node's /dev/shm
  memory_all the same after each rank has sent a message to every other
  idle      processor time of a rank that is blocked in a receive, or in a barrier
            (--in barrier)
  hop       the raw cache-line hop between two processes, without ferry

--nodes K divides the processes into K blocks, as on K nodes. Processes of different blocks
share no memory, and communicate through TCP on this machine.

With --goroutines M, the ranks are M goroutines of each process, of a thread communicator,
and -n is the number of processes, 1 by default. Each goroutine has a thread and a core
of its own, if there are enough cores. Benchmarks of processes (such as init and memory)
have no goroutine ranks.

Loops, warm-up, iterations and windows are those of the OSU micro-benchmarks.
The average is over the whole loop. The minimum and the percentiles are over
batches, since reading the clock for each message would change the result: 100
messages up to 8 KiB and 10 above for latency, a window for bw, bibw and mbw_mr,
10 barriers, a second for idle; the others are timed one by one. Collectives show
the mean of each figure over all ranks.

min, p50 and p99 are those of the printed figure: half of the batches are at or
below p50, 99 of 100 at or below p99. A comment below the table shows p50 of the rows in
which a few slow batches dominate the mean: that of a time is above 3 times p50, or p50
of a rate above 3 times the mean. For a time, p99 is thus among the slowest
batches; for a bandwidth or a rate it is among the fastest, and min is the slow
end.`

// Command returns the command.
func Command() *cobra.Command { return new(options).command() }

// command returns the command. Its flags set o.
func (o *options) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench NAME",
		Short:   "Measure messages, collectives, communicators and start",
		Long:    long,
		Example: "  ferry bench latency -m 8:1MiB\n  ferry bench barrier -n 8 --json",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.isGiven = cmd.Flags().Changed
			if err := o.check(args); err != nil {
				return err
			}
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if f.Name != "set" && f.Name != "n" && f.Name != "nodes" { // The launcher has them.
					o.rankFlags = append(o.rankFlags, "--"+f.Name+"="+f.Value.String())
				}
			})
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	o.rankOptions.addFlags(f)
	o.sizeOptions.addFlags(f)
	o.loopOptions.addFlags(f)
	o.matchOptions.addFlags(f)
	o.changeOptions.addFlags(f)
	o.tailOptions.addFlags(f)
	f.BoolVar(&o.isPersistent, "persistent", false, "for halo and blocking collectives: Start and Wait of a persistent operation")
	f.BoolVar(&o.isSeparate, "isend-irecv", false, "for halo and isendrecv: messages of Isend and Irecv")
	f.StringVar(&o.outputFormat, "format", "osu", "output `FORMAT`: osu, json (as --json), csv or gobench")
	o.jsonOutput.Flag(f, "write each row as a line of JSON")
	f.StringVar(&o.elementType, "type", elementTypes[0], "for reductions: `TYPE` of elements, float or int, of 4 bytes each")
	f.StringVar(&o.idleCall, "in", blockedIn[0], "for idle: what ranks block `IN`: "+strings.Join(blockedIn, " or "))
	o.settingFlags = settings.Flag(f)
	f.BoolVar(&o.isRank, "rank", false, "be one of the ranks")
	_ = f.MarkHidden("rank") // fails only for a flag that isn't there
	settings.Complete(cmd, map[string]cobra.CompletionFunc{
		"set": settings.Set, "format": settings.OneOf("osu", jsonFormat, "csv", "gobench"),
		"thread-level": settings.OneOf("single", "funneled", "serialized", "multiple"),
		"queue":        settings.OneOf(queues()...), "type": settings.OneOf(elementTypes...), "in": settings.OneOf(blockedIn...), "to": settings.OneOf(changesTo...),
		"m": settings.None, "mem-limit": settings.None, "depth": settings.None, "live": settings.None, "alloc": settings.None,
	})
	return cmd
}

// check validates the flags and derives values from them. Values that mean "OSU's" and "as many as needed"
// cannot be given explicitly.
func (o *options) check(args []string) error {
	if len(args) != 1 {
		return exit.Usagef("want one benchmark: %s", strings.Join(names(), ", "))
	}
	at := slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == args[0] })
	if at < 0 {
		return exit.Usagef("unknown benchmark %s; did you mean %s? The benchmarks are %s",
			args[0], framework.Nearest(args[0], names()), strings.Join(names(), ", "))
	}
	o.benchmark = benchmarks[at]
	if o.name == "latency" && o.isGiven("connected") {
		o.wantedRanks, o.measureAll = several, (*rank).latencyAmongOthers
	}
	switch o.name {
	case "shrink":
		if o.isGiven("add") || o.isGiven("async") {
			o.benchmark = elasticShrink
		}
	case "idle":
		o.osuTitle += o.idleCall
	case "latency_mt":
		o.osuTitle += fmt.Sprintf(", %d goroutines of each rank", o.goroutinesPerRank)
	case "mbw_mr":
		o.pairGoroutines()
	}
	if err := o.checkRanks(); err != nil {
		return err
	}
	var err error
	if o.minSize, o.maxSize, err = parseSizes(o.sizeRange); err != nil {
		return err
	}
	if o.hasSizes || o.measureAll != nil {
		if err := o.checkMemory(); err != nil {
			return err
		}
	}
	reduces, _ := o.traits()
	if reduces {
		if o.minSize = max(o.minSize, elementBytes); o.minSize%elementBytes != 0 || o.maxSize < o.minSize {
			return exit.Usagef("-m %s: %s takes multiples of %d bytes", o.sizeRange, o.name, elementBytes)
		}
	}
	if err := o.checkTail(); err != nil {
		return err
	}
	if o.depthMin, o.depthMax, err = parseSizes(o.depthRange); err != nil || o.depthMin < 1 || o.depthMax > mostDeep {
		return exit.Usagef("--depth %s: want MIN:MAX, from 1 to %d", o.depthRange, mostDeep)
	}
	if err := o.checkElastic(); err != nil {
		return err
	}
	if err := o.checkThreads(); err != nil {
		return err
	}
	if err := o.checkForms(); err != nil {
		return err
	}
	if err := o.checkJSON(); err != nil {
		return err
	}
	return o.checkFlags(reduces)
}

// checkFlags refuses flags with wrong values, and flags of other benchmarks.
func (o *options) checkFlags(reduces bool) error {
	_, isLevel := threadLevels[o.threadLevel]
	switch {
	case o.isGiven("i") && o.iterations < 1:
		return exit.Usagef("-i %d: want at least 1 iteration", o.iterations)
	case o.isGiven("x") && o.warmupIterations < 0:
		return exit.Usagef("-x %d: want 0 or more warm-up iterations", o.warmupIterations)
	case o.allocMem && (!o.hasSizes || reduces):
		return exit.Usagef("--alloc-mem: %s has no message buffers", o.name)
	case !isLevel:
		return exit.Usagef("--thread-level %s: want single, funneled, serialized or multiple", o.threadLevel)
	case o.isGiven("connected") && o.name != "any_lat" && o.name != "latency":
		return exit.Usagef("--connected: %s has no ranks that only connect; any_lat and latency have", o.name)
	case (o.isGiven("depth") || o.isGiven("queue")) && o.name != "match":
		return exit.Usagef("--depth, --queue: %s has no queue; match has", o.name)
	case o.isGiven("to") && o.name != "change":
		return exit.Usagef("--to: %s changes nothing; change does", o.name)
	case o.onlyChange != "" && !slices.Contains(changesTo, o.onlyChange):
		return exit.Usagef("--to %s: want %s", o.onlyChange, strings.Join(changesTo, " or "))
	case o.onlyQueue != "" && !slices.Contains(queues(), o.onlyQueue):
		return exit.Usagef("--queue %s: did you mean %s? The queues are %s", o.onlyQueue, framework.Nearest(o.onlyQueue, queues()), strings.Join(queues(), ", "))
	case o.isGiven("connected") && (o.connectedRanks < 1 || o.connectedRanks >= o.rankCount):
		return exit.Usagef("--connected %d: want 1 to %d of %d ranks", o.connectedRanks, o.rankCount-1, o.rankCount)
	case o.isGiven("type") && !reduces:
		return exit.Usagef("--type: %s combines no elements; reduce does", o.name)
	case !slices.Contains(elementTypes, o.elementType):
		return exit.Usagef("--type %s: want float or int", o.elementType)
	case o.isGiven("in") && o.name != "idle":
		return exit.Usagef("--in: %s does not block; idle does", o.name)
	case !slices.Contains(blockedIn, o.idleCall):
		return exit.Usagef("--in %s: want %s", o.idleCall, strings.Join(blockedIn, " or "))
	case formats[o.outputFormat].writeRow == nil:
		return exit.Usagef("--format %s: want osu, json, csv or gobench", o.outputFormat)
	}
	return nil
}

// parseSizes reads MIN:MAX, or MAX alone as the OSU suite does.
func parseSizes(s string) (low, high int, err error) {
	from, to, both := strings.Cut(s, ":")
	if !both {
		from, to = "1", s
	}
	a, err := framework.ParseSize(from)
	b, err2 := framework.ParseSize(to)
	if err = errors.Join(err, err2); err == nil && (a < 0 || b < a) {
		err = errors.New("want 0 <= MIN <= MAX")
	}
	if err != nil {
		return 0, 0, exit.Usagef("-m %s: %w", s, err)
	}
	return int(a), int(b), nil
}

// checkMemory refuses buffers above the limit per rank, because the kernel would end processes of a machine with
// less memory.
func (o *options) checkMemory() error {
	limit, err := framework.ParseSize(o.memoryLimit)
	if err != nil {
		return exit.Usagef("-M %s: %w", o.memoryLimit, err)
	}
	_, buffers := o.traits()
	if largest := framework.Size(o.maxSize); largest > limit/framework.Size(buffers) {
		return exit.Usagef("-m %s: %d buffers of %v in each rank are over the limit of %v: raise it (-M), or take smaller messages",
			o.sizeRange, buffers, largest, limit)
	}
	return nil
}

// next returns the size after n.
func (o *sizeOptions) next(n int) int {
	switch {
	case !o.halfSteps || n < 2:
		return max(1, 2*n)
	case n&(n-1) == 0: // a power of two
		return n + n/2
	}
	return n + n/3
}

// largeMessage is the size in bytes above which OSU's loops are shorter.
const largeMessage = 8192

// loop returns the iterations for a size: those of the user, or the given
// numbers of OSU. Each iteration is one sample.
func (o *loopOptions) loop(size int, small, smallWarmup, large, largeWarmup int) loop {
	l := loop{iterations: small, warmupIterations: smallWarmup, batchSize: 1, opsPerIteration: 1}
	if size > largeMessage {
		l.iterations, l.warmupIterations = large, largeWarmup
	}
	if o.iterations > 0 {
		l.iterations = o.iterations
	}
	if o.warmupIterations >= 0 {
		l.warmupIterations = o.warmupIterations
	}
	return l
}

// fromOutside reports whether the benchmark measures whole jobs.
func (o *options) fromOutside() bool {
	return slices.Contains([]string{"init", "hello", "recover"}, o.name)
}

func (o *options) run(cmd *cobra.Command) error {
	isRank := o.isRank
	if !isRank {
		var err error
		if isRank, err = settings.InJob(*o.settingFlags); err != nil {
			return err
		}
	}
	if isRank {
		if o.isGiven("nodes") {
			return exit.Usagef("--nodes: a launcher has placed the ranks already: use ferry run --nodes, or start ferry bench by itself")
		}
		if !o.isRank && o.fromOutside() {
			return exit.Usagef("%s measures jobs from outside: start it without a launcher", o.name)
		}
		return o.asRank(cmd.Context(), cmd.OutOrStdout())
	}
	output, err := o.jsonOutput.Open(nil) // Rank 0 opens it again. Until then, the reader of a pipe needs this one.
	if err != nil {
		return err
	}
	defer output.Close()
	ranks, err := settings.Prepare(cmd.Context(), nil, *o.settingFlags)
	if err != nil {
		return err
	}
	ctx, stop := exit.NotifyContext(cmd.Context(), exit.Signals()...)
	defer stop()
	defer exit.IgnoreBrokenPipe()() // the job ends before this process does
	s := starter{o: o, rankSettings: ranks, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
	if o.fromOutside() {
		return s.jobs(ctx)
	}
	// Rank 0 prints the rows.
	return s.run(ctx, s.stdout, func(line string) { fmt.Fprintf(s.stderr, "ferry bench: %s\n", line) }, o.name, o.processCount, o.rankFlags)
}
