// Package matrix implements the command line of `ferry matrix`, which qualifies the transports of a machine. Every stack
// (a PML over a transport and its provider) runs every case in separate processes. Each outcome is a row of a report.
//
// Its checks are the kits (btltest, mtltest, pmltest), conform and `ferry bench`. Package plan selects stacks and cases,
// worker executes them in its own processes, job in the ranks of a launcher, and report has the results.
package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/job"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/worker"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/progressline"
	columns "github.com/ferrympi/ferry/internal/text"
)

const long = `Qualify the transports of this machine: run every case on every stack, and report
the results, with reasons and performance.

A stack is PML ob1 over a BTL ("ob1+shm"), or PML cm over a provider of libfabric
("cm+ofi tcp;ofi_rxm"). Stacks that this machine lacks are listed as unavailable, and
those that ferry does not use because of a defect as refused, with the reason. Cases are

  open       a session, a communicator, a message to each neighbor
  btltest, mtltest, pmltest
             the contract of the transport, and of the layer above it
  conform/N  the requirements of the MPI standard, with N ranks
  conform/2x2
             the same with 2 goroutine ranks in each of 2 processes
  bench      latency, message rate and bandwidth by size

A stack that --components names without a pattern, or that --require lists, must be
there: if it cannot run, that is a failure.

Cases run in separate processes. A case that crashes or hangs fails, with its output;
the others continue. A case that did not end runs once more, and is marked, if the
load of the machine is above 2 per processor. Suite quick takes a minute or two; full
has all policies of communicator ids, more ranks, added ranks, and as many iterations
as OSU's benchmarks.

With --job, ferry run, mpiexec, mpirun or srun has already started the processes, on
one node or many. For each stack they run the conformance cases together, and two on
different nodes run the benchmarks. Kits need processes on one node, and are omitted.
Rank 0 writes the report.

Cases that are known to fail because of a defect elsewhere are excluded, with the
reason: they run, and count as skipped. --exclude FILE replaces ferry's own list.

A report on standard output (--json, --junit - or --html -) moves the text to standard
error. --json FILE and --json - are earlier spellings of --json=FILE and --json.

Exit status: 0 without failures other than excluded ones; 1 if a case failed, was not
run because its stack was abandoned, was named and is missing, or is worse than in
--baseline; 2 for a wrong command line; 130 after an interrupt and 143 after SIGTERM,
with a partial report. A second interrupt ends the program at once.`

// statusInterrupted is the status of a program ended by SIGINT.
const statusInterrupted = 130

type options struct {
	suite, stackPatterns, requiredPatterns string
	casePattern, exclusionFile             string
	rankCounts                             []int
	jsonPath                               settings.JSON
	junitPath, htmlPath, baselinePath      string
	slowerFactor                           float64
	caseTimeout                            time.Duration
	isList, isJob                          bool
	settingFlags                           *[]string
}

// Command returns the command.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Qualify the transports of this machine",
		Long:  long,
		Example: "  srun -n 4 --mpi=pmix ferry matrix --job --suite quick\n" +
			"  ferry matrix --suite quick --html matrix.html\n" +
			"  ferry matrix --components 'ob1+shm,cm+ofi*' --cases '^(mtltest|conform)/'\n" +
			"  ferry run -n 4 ferry matrix --job --html matrix.html\n" +
			"  ferry matrix --suite full --json=now.json --baseline before.json --slower 1.5",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.suite, "suite", "quick", "`SUITE`: quick or full")
	f.StringVar(&o.stackPatterns, "components", "", "run the stacks in `LIST` of names and patterns (ob1+shm,cm+ofi*), or, with ^ in front, all others")
	f.StringVar(&o.requiredPatterns, "require", "", "fail without the stacks in `LIST` of names and patterns")
	f.StringVar(&o.casePattern, "cases", "", "run the cases whose names match `REGEXP`, besides open")
	f.IntSliceVar(&o.rankCounts, "ranks", nil, "numbers of ranks of the conformance cases: a `LIST` such as 2,4")
	o.jsonPath.Flag(f, "write the report as JSON")
	f.StringVar(&o.junitPath, "junit", "", "write the report as JUnit's XML to `FILE`, or -")
	f.StringVar(&o.htmlPath, "html", "", "write the report as a page to `FILE`, or -")
	f.StringVar(&o.baselinePath, "baseline", "", "compare with the JSON report in `FILE`")
	f.Float64Var(&o.slowerFactor, "slower", 0, "with --baseline: figures that are worse by more than `FACTOR` count as failures")
	f.StringVar(&o.exclusionFile, "exclude", "", "`FILE` of exclusions, in place of ferry's own")
	f.DurationVar(&o.caseTimeout, "timeout", 0, "the longest `TIME` that a case may take, in place of the suite's")
	f.BoolVar(&o.isList, "list", false, "list stacks and cases without running them")
	f.BoolVar(&o.isJob, "job", false, "run as one of the ranks of a launcher, and qualify their transports")
	f.Lookup("slower").DefValue, f.Lookup("ranks").DefValue = "0", ""
	o.settingFlags = settings.Flag(f)
	cmd.AddCommand(workerCommand())
	settings.Complete(cmd, map[string]cobra.CompletionFunc{
		"set": settings.Set, "suite": settings.OneOf("quick", "full"), "cases": settings.None,
		"components": settings.ListOf(stackNames), "require": settings.ListOf(stackNames),
	})
	return cmd
}

// stackNames returns the names of stacks that are known without a survey, and patterns for the others.
func stackNames() (names []string) {
	reg := settings.Registry()
	for _, c := range reg.Components(framework.BTL) {
		names = append(names, "ob1+"+c.Info().Name)
	}
	for _, c := range reg.Components(framework.MTL) {
		names = append(names, "cm+"+c.Info().Name+"*")
	}
	return names
}

// suites has the suites by name.
var suites = map[string]func() plan.Suite{"quick": plan.Quick, "full": plan.Full}

// request checks the flags and returns the request.
func (o *options) request() (*plan.Request, error) {
	suite, ok := suites[o.suite]
	if !ok {
		return nil, exit.Usagef("--suite %s: want quick or full", o.suite)
	}
	reg := settings.Registry()
	values, err := settings.LoadForUser(reg, *o.settingFlags)
	if err != nil {
		return nil, err
	}
	r := &plan.Request{Registry: reg, Values: values, SetParams: *o.settingFlags, Suite: suite()}
	if set := r.FixedParam(); set != "" {
		return nil, exit.Usagef("--set %s: each stack sets that itself; choose stacks with --components", set)
	}
	if len(o.rankCounts) > 0 {
		slices.Sort(o.rankCounts)
		if r.Suite.ConformRanks = slices.Compact(o.rankCounts); o.rankCounts[0] < 1 {
			return nil, exit.Usagef("--ranks: %d is not a number of ranks", o.rankCounts[0])
		}
	}
	r.CaseLimit = r.Suite.CaseLimit
	switch {
	case o.caseTimeout < 0:
		return nil, exit.Usagef("--timeout %v: want a time", o.caseTimeout)
	case o.caseTimeout > 0:
		r.CaseLimit, r.Suite.OpenLimit, r.Suite.StartTime = o.caseTimeout, 0, 0
		r.CommandFlags = append(r.CommandFlags, "--timeout", o.caseTimeout.String())
	}
	if o.stackPatterns != "" {
		if r.SelectedStacks, err = plan.ParseComponents(o.stackPatterns); err != nil {
			return nil, exit.Usagef("--components: %w", err)
		}
	}
	if o.requiredPatterns != "" {
		if r.RequiredStacks, err = plan.ParseComponents(o.requiredPatterns); err == nil && strings.HasPrefix(strings.TrimSpace(o.requiredPatterns), "^") {
			err = errors.New("want names and patterns of required stacks")
		}
		if err != nil {
			return nil, exit.Usagef("--require: %w", err)
		}
	}
	if o.casePattern != "" {
		if r.CasePattern, err = regexp.Compile(o.casePattern); err != nil {
			return nil, exit.Usagef("--cases: %w", err)
		}
	}
	if o.exclusionFile == "" {
		r.Exclude, err = plan.BuiltIn()
		return r, err
	}
	r.CommandFlags = append(r.CommandFlags, "--exclude", o.exclusionFile)
	text, err := os.ReadFile(o.exclusionFile)
	if err == nil {
		r.Exclude, err = plan.ParseExclusions(o.exclusionFile, text)
	}
	if err != nil {
		return nil, exit.Usagef("--exclude: %w", err)
	}
	return r, nil
}

// base returns the report to compare with, or nil.
func (o *options) base() (*report.Report, error) {
	switch {
	case o.slowerFactor != 0 && o.baselinePath == "":
		return nil, exit.Usagef("--slower %v: it needs --baseline", o.slowerFactor)
	case o.slowerFactor != 0 && !(o.slowerFactor > 1):
		return nil, exit.Usagef("--slower %v: want a factor above 1", o.slowerFactor)
	case o.baselinePath == "":
		return nil, nil
	}
	f, err := os.Open(o.baselinePath)
	if err != nil {
		return nil, exit.Usagef("--baseline: %w", err)
	}
	defer f.Close()
	base, err := report.ReadJSON(f)
	if err != nil {
		return nil, exit.Usagef("--baseline %s: %w", o.baselinePath, err)
	}
	return base, nil
}

func (o *options) run(cmd *cobra.Command) error {
	if !o.isJob {
		switch inJob, err := settings.InJob(*o.settingFlags); {
		case err != nil:
			return err
		case inJob:
			return exit.Usagef("it starts its own ranks: run it without a launcher, or with --job as one of its ranks")
		}
	}
	r, err := o.request()
	if err != nil {
		return err
	}
	base, err := o.base()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	ctx, stop := interruptible(cmd.Context(), exit.Signals()...)
	defer stop()
	pool := &worker.Pool{
		WorkerProgram: self, WorkerArgs: []string{"matrix", "worker"}, SetParams: r.SetParams, MaxParallel: max(2, runtime.NumCPU()/2), Cleanup: settings.Sweep(r.Values),
	}
	x := &execution{
		options: o, request: r, baselineReport: base, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
		runPlan:       func(p *plan.Plan, t *report.Terminal) (*report.Report, error) { return pool.Run(ctx, p.Begin(t)), nil },
		isInterrupted: func() bool { return ctx.Err() != nil },
	}
	if o.isJob {
		j, err := o.join(ctx, r)
		switch {
		case err != nil && x.isInterrupted():
			return exit.Status(statusInterrupted)
		case err != nil:
			return err
		}
		defer j.Close()
		x.isInterrupted = func() bool { return ctx.Err() != nil || j.WasInterrupted() }
		if j.Rank() > 0 {
			if _, err = j.Run(ctx, nil, nil); x.isInterrupted() {
				err = exit.Status(statusInterrupted)
			}
			return err
		}
		j.SavePartial = func(found *report.Report) {
			if err := x.reportOutputs.save(found, nil, false); err != nil {
				fmt.Fprintf(x.stderr, "ferry matrix: %v\n", err)
			}
		}
		x.runPlan = func(p *plan.Plan, t *report.Terminal) (*report.Report, error) { return j.Run(ctx, p, t) }
	}
	if x.reportOutputs, err = o.open(x.stdout); err != nil {
		return err
	}
	defer x.reportOutputs.close()
	line := progressline.Start(x.stderr, "ferry matrix", "surveying transports and providers")
	p, err := r.MakePlan(ctx, pool.Survey)
	line.Close()
	switch {
	case err != nil && x.isInterrupted():
		return &exit.Error{Status: statusInterrupted, Err: fmt.Errorf("%w before a case ran: no report is written", err)}
	case err != nil:
		return err
	case o.isList:
		return list(x.stdout, p)
	}
	return x.execute(p)
}

// An execution runs a plan and writes its report.
type execution struct {
	*options
	request *plan.Request
	// May be nil.
	baselineReport *report.Report
	reportOutputs  outputs
	stdout, stderr io.Writer
	runPlan        func(*plan.Plan, *report.Terminal) (*report.Report, error)
	isInterrupted  func() bool
}

// execute runs the plan and writes the report. The error has the exit status.
func (x *execution) execute(p *plan.Plan) error {
	// With the report on standard output, the text goes to standard error.
	text := x.stdout
	if x.reportOutputs.stdout() {
		text = x.stderr
	}
	var look report.Look
	if f, ok := text.(*os.File); ok {
		look = report.LookAt(f)
	}
	wrapped := look
	wrapped.Width = columns.Width(text)
	// The run continues after a write to a closed pipe, because the files are still to be written.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	terminal := report.NewTerminal(text, look)
	terminal.PrintsStarts = x.isJob
	found, err := x.runPlan(p, terminal)
	terminal.Close()
	if err != nil {
		return err
	}
	found.Notes = append(found.Notes, found.Retries()...)
	if r := x.request; !x.isJob && r.SelectedStacks == nil && r.CasePattern == nil {
		found.Notes = append(found.Notes, r.Exclude.Notes(found)...)
	}
	var compared *report.Comparison
	if x.baselineReport != nil {
		compared = report.Compare(x.request.SelectedStacks.FilterReport(x.baselineReport), found, x.slowerFactor)
	}
	err = x.reportOutputs.save(found, compared, true)
	if textErr := report.WriteText(text, found, compared, wrapped); !errors.Is(textErr, syscall.EPIPE) {
		err = errors.Join(err, textErr)
	}
	switch {
	case err != nil:
		return err
	case found.EndReason != "" && x.isInterrupted():
		return exit.Status(statusInterrupted)
	case found.EndReason != "" || found.Failed() || compared.Failed():
		return exit.Status(exit.Failed) // The text has the reason.
	}
	return nil
}

// join joins the launcher's job as one of its ranks. The caller closes it.
func (o *options) join(ctx context.Context, r *plan.Request) (*job.Job, error) {
	switch {
	case o.isList:
		return nil, exit.Usagef("--list: leave --job out")
	case len(o.rankCounts) > 0:
		return nil, exit.Usagef("--ranks: --job takes the launcher's ranks as they are")
	}
	j := &job.Job{Request: r}
	return j, j.Open(ctx)
}

// list prints the names of stacks and cases.
func list(w io.Writer, p *plan.Plan) error {
	var b strings.Builder
	for i, s := range p.Stacks {
		if s.AbsentReason != "" {
			fmt.Fprintf(&b, "%s: %s\n", s.Name, s.Missing())
			continue
		}
		fmt.Fprintf(&b, "%s\n  %s\n", s.Name, strings.Join(p.Cells(i), "\n  "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// interruptible returns a context that is canceled by the first of the signals. A second one has its default effect.
func interruptible(ctx context.Context, signals ...os.Signal) (context.Context, func()) {
	ctx, stop := exit.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// reports is the descriptor of a worker's reports, the first of launch.Job's Files.
const reports = 3

// workerCommand is the hidden command of the workers.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker TASK", Short: "Run cases for ferry matrix", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := os.NewFile(reports, "reports")
			if _, err := out.Stat(); err != nil {
				return fmt.Errorf("only ferry matrix starts workers: %w", err)
			}
			// Children of a case must not inherit the pipe.
			syscall.CloseOnExec(reports)
			ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM)
			defer stop()
			reg := settings.Registry()
			values, err := settings.Load(reg, nil, nil)
			if err != nil {
				return err
			}
			err = worker.Work(ctx, reg, values, args[0], out, cmd.ErrOrStderr(), settings.Session()...)
			return errors.Join(err, out.Close())
		},
	}
}
