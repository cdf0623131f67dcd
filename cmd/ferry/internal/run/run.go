// Package run implements `ferry run`, the command line of the launcher. Its own messages go to standard error, so that
// standard output has only those of the programs.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/explain"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/cmd/ferry/internal/watch"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/text"
)

const long = `Start a program as N ranks on this machine.

A colon separates several programs: ` + "`ferry run -n 1 a : -n 3 b`" + ` starts rank 0 as a, and
ranks 1 to 3 as b. After a colon, -n, -x and --wdir apply to the next program only. Flags
before the first program apply to all, except -n. Put -- before a program that takes a
colon as an argument.

Ranks inherit the environment and the working directory. Standard input goes to
rank 0; a terminal is read only while ferry run is in the foreground. Output goes to a
terminal as it is; elsewhere, or with --tag-output, which puts "[rank] " before each
line, lines of different ranks never mix. --output-dir writes a file for each rank:
rank.0, rank.1 and so on. No output is lost silently: ferry run waits for a reader that
pauses, and a write that fails is reported and ends the job. Only a job that is cut
short, by --timeout or a signal, drops output that is unread 2 s later.

INT, TERM, QUIT, HUP and USR1 are forwarded to every rank and its process group; a
second INT or TERM kills the job. TSTP (Ctrl-Z) stops the ranks, ferry run and the
clock of --timeout; CONT (fg, bg) resumes them. On USR2, and after --timeout, standard
error says in a line for each rank what it waits for. Cycles of ranks that wait for one
another follow, then the queues, and with --stacks the goroutines.

When a rank fails the others are notified, and at the end of the job all failed ranks
are listed: the one that failed first, then those that failed because of it. With
--on-failure end, the default, the others get 2 s to finish, then SIGTERM, and 2 s
later SIGKILL; with continue they keep running, and the list has the time of each
failure. For programs that survive failures, --tolerate N implies continue, and ferry
run exits with status 0 if at most N ranks fail and all others succeed.
A rank that runs, but has lost its connection to ferry run, counts as failed: the
others are notified at once. Its own messages fail after bootstrap.timeout, and with
--on-failure end the job ends then; with continue nothing ends a rank that ignores
these errors. Every rank gets the same errors if ferry run itself is killed, unless
bootstrap.on_loss is continue.

At the end ferry run kills what ranks have started and is still running, background
processes and daemons included, and removes the shared memory of killed ranks. It can't
kill a process of another user (sudo), or one that something else has started for a
rank (a container runtime, systemd, at, a batch system). If ferry run itself is killed
with SIGKILL, the processes that it has started die with it. If a rank runs inside a
shell or another wrapper, the wrapper is that process; the rank ends because of the
errors that it gets after bootstrap.timeout, unless it ignores them. Other processes
that ranks have started keep running in that case.

--bind-to core gives each rank one core, in turn. --cores-per-rank N gives each rank N cores
that no other rank gets, for programs with several goroutines or goroutine ranks; it is an
error if there are too few, and a change that adds more ranks than have cores is refused. Both
set GOMAXPROCS of the ranks, unless it is set: to 2 for one core, else to N. --explain shows
the cores of each rank.

--nodes K divides the ranks into K blocks, as on K nodes. Ranks of different blocks share no
memory, and communicate through TCP on this machine. The first blocks have one rank more if K
does not divide the number of ranks. The process sets mpix://SHARED and mpix://ROOTS follow
the blocks. A rank that a change adds goes to the block with the fewest running ranks.

Changes of the job (process sets) add ranks, which run the program of the last rank of
the set, up to --max-ranks at a time, and remove ranks. A rank that leaves and is
still running after --grace gets SIGTERM, and 2 s later SIGKILL. The end of a rank that
left, or whose change is not complete, neither ends the job nor decides the exit status.
With --on-failure continue, the same holds for a failed rank that a later change has
removed. ferry resize requests a change of a running job, and ferry ps lists jobs.

--timing prints to standard error, after the job, when the first, the median and the
last rank completed each step up to their first message; its duration, and
how much of that was processor time; and the share of the total that had passed when
the last rank completed it. Ranks report this when they close their last session.

--watch prints to standard error the address of a page that shows the job in a browser on
this machine: ranks with their state, transport, messages and bytes per second of each pair,
the graph of process sets, and each change. The address is secret, and the page changes
nothing. Ranks are asked for their counts once per second while a browser shows the page.

Exit status: 0 if every rank's is 0, or at most the ranks of --tolerate failed; else that
of the rank that failed first (128 plus the signal's number if it was killed); 124 after --timeout; 1 if output could not be
written; 2 for a wrong command line or configuration; 127 if the program does not exist, and 126 if it
can't be executed.`

type options struct {
	rankCount int
	exports   []string
	// "--" precedes the program.
	isSingleProgram   bool
	settingFlags      *[]string
	psetFlags         []string
	onFailure         string
	toleratedFailures int

	placementOptions
	outputOptions

	leaveGrace time.Duration
	timeout    time.Duration
	dumpStacks bool
	isWatched  bool
	workDir    string

	// The flag is on the command line.
	isGiven func(flag string) bool
}

// placementOptions are those of the number of ranks on this machine, and of their places.
type placementOptions struct {
	bindTo string
	// With 0, bindTo applies.
	coresPerRank int
	maxRanks     int
	// 0 if not given.
	nodeCount int
}

// outputOptions are those of the output of ranks, and of reports at the end.
type outputOptions struct {
	tagOutput bool
	outputDir string
	// "", explainPairs or explainAll.
	explainMode string
	// See openTiming; "" for no timing.
	timingOutput string
}

// Command returns the command.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "run [flags] PROGRAM [ARGUMENTS] [: [-n N] PROGRAM [ARGUMENTS]]",
		Short:   "Start a program as N ranks on this machine",
		Long:    long,
		Example: "  ferry run -n 4 --tag-output bin/hello\n  ferry run -n 2 --set btl=self,shm --explain bin/pi\n  ferry run -n 1 bin/server : -n 3 --wdir data bin/worker",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.isSingleProgram = cmd.ArgsLenAtDash() == 0
			o.isGiven = cmd.Flags().Changed
			return o.runJob(cmd, args)
		},
	}
	f := cmd.Flags()
	o.addPartFlags(f)
	o.settingFlags = settings.Flag(f)
	f.StringArrayVar(&o.psetFlags, "pset", nil, "process set: `NAME=0-3,7`; may be repeated")
	f.StringVar(&o.bindTo, "bind-to", "none", "`PLACE`: core gives each rank a processor core, none leaves it to the system")
	f.IntVar(&o.coresPerRank, "cores-per-rank", 0, "give each rank `N` processor cores that no other rank gets, and as many threads for goroutines")
	f.StringVar(&o.onFailure, "on-failure", "end", "`POLICY` when a rank fails: end the job, or continue")
	f.IntVar(&o.toleratedFailures, "tolerate", 0, "exit with status 0 if at most `N` ranks fail and the others succeed; implies --on-failure continue")
	f.BoolVar(&o.tagOutput, "tag-output", false, "put [rank] before each line (also --label)")
	f.StringVar(&o.outputDir, "output-dir", "", "write the output of each rank to a file of its own in `DIRECTORY`, rank.0 and so on")
	f.StringVar(&o.explainMode, "explain", "", "at the end, show the transport of each pair of ranks, and the reasons against the others, as with FERRY_EXPLAIN=1; with `all`, also the components, the learned protocols of large messages and the algorithms of collectives")
	f.Lookup("explain").NoOptDefVal = explainPairs
	f.StringVar(&o.timingOutput, "timing", "", "at the end, show when each step from launch to first message was done: a table; `json`, or a FILE for JSON")
	f.Lookup("timing").NoOptDefVal = timingTable
	f.IntVar(&o.maxRanks, "max-ranks", 0, "let changes of the job add ranks, up to `N` at a time (default the number of the first ranks)")
	f.IntVar(&o.nodeCount, "nodes", 0, "divide the ranks into `K` blocks that share no memory, as on K nodes")
	f.Lookup("nodes").DefValue = "1"
	f.DurationVar(&o.leaveGrace, "grace", launch.DefaultLeaveGrace, "`TIME` in which a rank ends that leaves by a change, before it gets SIGTERM")
	f.DurationVar(&o.timeout, "timeout", 0, "end the job after this `TIME`, such as 30s")
	f.BoolVar(&o.dumpStacks, "stacks", false, "after --timeout and on USR2, also show the stacks of the ranks' goroutines")
	f.BoolVar(&o.isWatched, "watch", false, "show the job on a page for a browser, whose address is printed")
	settings.Complete(cmd, completions)
	return cmd
}

func (o *options) runJob(cmd *cobra.Command, args []string) error {
	startedAt := processStart()
	job, err := o.makeJob(cmd.Context(), args)
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	var showTiming func(*timing) error
	if o.timingOutput != "" { // An error is reported before the job starts.
		if showTiming, err = openTiming(o.timingOutput, stderr); err != nil {
			return exit.Usagef("--timing: %w", err)
		}
	}
	signals := make(chan os.Signal, 16) // Holds a burst of all kinds.
	signal.Notify(signals, append(exit.Signals(), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)...)
	if !signal.Ignored(syscall.SIGTSTP) { // It is ignored in a shell without job control.
		signal.Notify(signals, syscall.SIGTSTP)
	}
	defer signal.Stop(signals)
	defer exit.IgnoreBrokenPipe()()
	job.Signals = signals

	job.Note = func(line string) {
		// There is no other place to report a failure.
		_ = launch.WriteAll(stderr, fmt.Appendf(nil, "ferry run: %s\n", line))
	}
	if o.isWatched {
		page, err := watch.Open()
		if err != nil {
			return err
		}
		defer page.Close()
		job.Observer = page
		job.Note("this job is shown at " + page.URL())
	}
	result, err := job.Run(cmd.Context())
	signal.Stop(signals)     // From here on, they end this process.
	if result.IsOutputLost { // A write to standard error may block.
		if err != nil {
			result.Status, _ = exit.Of(err)
		}
		return exit.Status(result.Status)
	}
	if err != nil {
		return err
	}
	if o.explainMode != "" || explain.IsReported(result.Reports) {
		err = o.printExplanation(stderr, result)
	}
	if showTiming != nil {
		t, timingErr := mergeTiming(startedAt, result)
		if timingErr == nil {
			timingErr = showTiming(t)
		}
		err = errors.Join(err, timingErr)
	}
	if err != nil && result.Status == 0 {
		return err
	} else if err != nil { // The job's status has precedence.
		job.Note(err.Error())
	}
	return exit.Status(result.Status)
}

// Values of --explain.
const (
	explainPairs = "pairs"
	explainAll   = "all"
)

// printExplanation prints the output of --explain.
func (o *options) printExplanation(w io.Writer, res launch.Result) error {
	e, err := explain.Merge(res.Reports)
	if err != nil {
		return err
	}
	detail := explain.Pairs
	if o.explainMode == explainAll {
		detail = explain.All
	}
	err = errors.Join(e.Print(w, detail, text.Width(w)), printBindings(w, res.ProcessorsByRank))
	if err == nil && detail == explain.Pairs {
		_, err = io.WriteString(w, "\n--explain=all shows components, learned protocols and collectives.\n")
	}
	return err
}

// printBindings prints the cores of each rank if ranks were bound.
func printBindings(w io.Writer, bindings [][]int) error {
	if bindings == nil {
		return nil
	}
	var b strings.Builder
	b.WriteString("\nRANK  CORES\n")
	for rank, cores := range bindings {
		if cores == nil { // Not started.
			continue
		}
		fmt.Fprintf(&b, "%-4d  %s\n", rank, text.Numbers(cores))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// makeJob checks the command line and returns the job. It starts no process.
func (o *options) makeJob(ctx context.Context, args []string) (launch.Job, error) {
	var j launch.Job
	switch {
	case o.bindTo != "core" && o.bindTo != "none":
		return j, exit.Usagef("--bind-to %s: want core or none", o.bindTo)
	case o.isGiven("cores-per-rank") && o.coresPerRank < 1:
		return j, exit.Usagef("--cores-per-rank %d: want at least 1 core", o.coresPerRank)
	case o.coresPerRank > 0 && o.isGiven("bind-to") && o.bindTo == "none":
		return j, exit.Usagef("--cores-per-rank %d binds ranks to cores: leave out --bind-to none", o.coresPerRank)
	case !slices.Contains([]string{"", explainPairs, explainAll}, o.explainMode):
		return j, exit.Usagef("--explain=%s: want %s or %s", o.explainMode, explainPairs, explainAll)
	case o.onFailure != "end" && o.onFailure != "continue":
		return j, exit.Usagef("--on-failure %s: want end or continue", o.onFailure)
	case o.isGiven("tolerate") && o.toleratedFailures < 1:
		return j, exit.Usagef("--tolerate %d: want at least 1 rank", o.toleratedFailures)
	case o.toleratedFailures > 0 && o.isGiven("on-failure") && o.onFailure == "end":
		return j, exit.Usagef("--tolerate %d: the job continues after failures: leave out --on-failure end", o.toleratedFailures)
	case o.maxRanks < 0:
		return j, exit.Usagef("--max-ranks %d: want a number above 0", o.maxRanks)
	case o.isGiven("nodes") && o.nodeCount < 1:
		return j, exit.Usagef("--nodes %d: want at least 1 node", o.nodeCount)
	case o.leaveGrace <= 0:
		return j, exit.Usagef("--grace %v: want a time above 0", o.leaveGrace)
	case o.timeout < 0:
		return j, exit.Usagef("--timeout %v: want a time above 0", o.timeout)
	}
	j = launch.Job{
		Binding:       launch.Binding{BindsOneCore: o.bindTo == "core", CoresPerRank: o.coresPerRank},
		FailurePolicy: launch.FailurePolicy{ContinuesOnFailure: o.onFailure == "continue" || o.toleratedFailures > 0, ToleratedFailures: o.toleratedFailures},
		Output:        launch.Output{Stdout: os.Stdout, Stderr: os.Stderr, TagsLines: o.tagOutput, OutputDir: o.outputDir},
		Stdin:         os.Stdin, Timeout: o.timeout, ReportsStacks: o.dumpStacks, SweepsDescendants: true, IsControllable: true, MaxRanks: o.maxRanks, NodeCount: o.nodeCount, LeaveGrace: o.leaveGrace,
	}
	for _, p := range o.psetFlags {
		set, err := server.ParsePset(p)
		if err != nil {
			return j, exit.Usagef("--pset: %w", err)
		}
		j.Psets = append(j.Psets, set)
	}
	set := *o.settingFlags
	var reportNames []string
	if o.explainMode != "" {
		reportNames = append(reportNames, explain.ReportName)
	}
	if o.timingOutput != "" {
		reportNames = append(reportNames, timingReport)
	}
	if len(reportNames) > 0 {
		set = append(set, explain.ReportParam+"="+strings.Join(reportNames, ","))
	}
	parts, err := o.parseParts(args)
	if err != nil {
		return j, err
	}
	if n := countRanks(parts); o.maxRanks > 0 && o.maxRanks < n {
		return j, exit.Usagef("--max-ranks %d: the job starts with %d", o.maxRanks, n)
	}
	if maxRanks := max(countRanks(parts), o.maxRanks); o.toleratedFailures >= maxRanks {
		return j, exit.Usagef("--tolerate %d: one of at most %d ranks has to succeed: choose a smaller number", o.toleratedFailures, maxRanks)
	}
	if n := countRanks(parts); o.nodeCount > n {
		return j, exit.Usagef("--nodes %d: the job starts with %d ranks, and each node needs one", o.nodeCount, n)
	}
	for i, p := range parts {
		ranks, err := settings.Prepare(ctx, p.Env, set)
		if err != nil {
			return j, err
		}
		if p.Env = ranks.Env; i > 0 {
			j.MoreParts = append(j.MoreParts, p)
			continue
		}
		j.Program, j.Args, j.RankCount, j.WorkingDir, j.Env = p.Program, p.Args, p.RankCount, p.WorkingDir, p.Env
		j.Cleanup, j.LossGrace, j.ProcessTimeout = ranks.Cleanup, ranks.LossGrace(), ranks.ProcessTimeout()
	}
	return j, nil
}

// countRanks returns the number of ranks of all parts.
func countRanks(parts []launch.Part) (n int) {
	for _, p := range parts {
		n += p.RankCount
	}
	return n
}

// hostFlags are flags of mpiexec and mpirun that select hosts or places on them. `ferry run` has none of them.
var hostFlags = []string{
	"host", "hosts", "hostlist", "hostfile", "machinefile", "machine", "machines", "f", "H", "ppn", "perhost", "npernode", "N",
	"rf", "rankfile", "launcher", "nodelist", "w",
}

// Normalize adapts the arguments of `ferry run` from mpiexec to package pflag, which parses "-np 4" as "-n p". Long
// names with one dash get two. Arguments of other commands and of the program are kept.
func Normalize(args []string) []string {
	if len(args) == 0 || args[0] != "run" {
		return args
	}
	return append([]string{"run"}, normalizeFlags(Command().Flags(), args[1:])...)
}

func normalizeFlags(flags *pflag.FlagSet, args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" || !strings.HasPrefix(arg, "-") || arg == "-" {
			return append(out, args[i:]...)
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		single := !strings.HasPrefix(arg, "--")
		if number := strings.TrimPrefix(name, "np"); single && number != "" && strings.Trim(number, "0123456789") == "" { // -np2
			arg, name, hasValue, single = "--np="+number, "np", true, false
		}
		flag := flags.Lookup(name)
		if flag == nil && single && len(name) > 0 && flags.ShorthandLookup(name[:1]) != nil &&
			!slices.Contains(hostFlags, name) {
			flag = flags.ShorthandLookup(name[:1])
			hasValue = hasValue || len(name) > 1 // -n4, -xHOME
		} else if single && len(name) > 1 {
			arg = "-" + arg
		}
		out = append(out, arg)
		if flag != nil && flag.NoOptDefVal == "" && !hasValue && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// canonicalFlag maps aliases of flags to their names.
func canonicalFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "np":
		name = "n"
	case "label":
		name = "tag-output"
	}
	return pflag.NormalizedName(name)
}

// FlagError adds a remedy to an error of package pflag.
func FlagError(flags *pflag.FlagSet, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return exit.Usagef("%s %s: want %s", DashedFlag(bad.GetFlag().Name), bad.GetValue(), describeValues(bad.GetFlag()))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return exit.Usagef("%w", err)
	}
	name := unknown.GetSpecifiedName()
	dashed := DashedFlag(name)
	if slices.Contains(hostFlags, name) {
		return exit.Usagef("%s: ferry run starts ranks on this machine only; for other machines start the program itself with mpiexec or srun", dashed)
	}
	if slices.Contains([]string{"mca", "gmca", "pmca", "prtemca"}, name) {
		return exit.Usagef("unknown flag %s; ferry's parameters are set by --set NAME=VALUE, such as --set btl=self,tcp", dashed)
	}
	var known []string
	flags.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := framework.Nearest(name, known); len(name) > 1 && framework.Near(name, near) { // Any two single letters are near.
		return exit.Usagef("unknown flag %s; did you mean --%s?", dashed, near)
	}
	return exit.Usagef("unknown flag %s", dashed)
}

// completions has the values of flags, for shells.
var completions = map[string]cobra.CompletionFunc{
	"bind-to": settings.OneOf("core", "none"), "on-failure": settings.OneOf("end", "continue"), "timing": settings.OneOf(timingTable, timingJSON),
	"explain": settings.OneOf(explainPairs, explainAll), "set": settings.Set, "x": completeVariable, "pset": settings.None,
	"wdir": settings.Folder, "output-dir": settings.Folder,
}

// completeVariable completes the name of an environment variable.
func completeVariable(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// DashedFlag returns a flag as on the command line.
func DashedFlag(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// describeValues describes the valid values of a flag.
func describeValues(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int":
		return "a whole number"
	case "duration":
		return "a time such as 30s or 5m"
	case "bool":
		return "true or false"
	case "intSlice":
		return "whole numbers such as 2,4"
	case "float64":
		return "a number such as 1.5"
	}
	return "a " + f.Value.Type()
}
