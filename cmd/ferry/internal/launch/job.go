// Package launch runs the ranks of one job on this machine. It serves their bootstrap, passes on signals and
// output, ends the job when a rank fails or the time limit is over, and leaves no
// process, socket or directory. `ferry run` is its command line; the
// benchmarks and `ferry explain` use it too.
//
// It uses bootstrap/local/server, and is independent of messages. It never
// ends the process itself, and handles no signals other than the given ones and SIGCHLD
// (Job.SweepsDescendants).
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/limits"
)

// Grace is the time for each step of ending a job. It suffices to write a
// file.
const Grace = 2 * time.Second

// DefaultLeaveGrace is Job.LeaveGrace without a value. A process that leaves closes its session first.
const DefaultLeaveGrace = 10 * time.Second

// dumpGrace is the time for ranks to report their blocked calls, before the end of a job at its time
// limit.
const dumpGrace = time.Second

// StatusTimeout is the exit status after Timeout, as in timeout(1).
const StatusTimeout = 124

// StatusOutput is the exit status of a job that failed only to write its output.
const StatusOutput = 1

// A Part is one program of a job. Its ranks follow those of the parts before.
type Part struct {
	// A path, or a name to be found in PATH. Resolve checks it beforehand.
	Program string
	// Without the program's name.
	Args      []string
	RankCount int
	// Empty for that of this process.
	WorkingDir string
	// NAME=value, added to this process's environment; later ones win.
	Env []string
}

// check finds the part's program, before anything starts.
func (p *Part) check() error {
	if p.RankCount < 1 {
		return fmt.Errorf("%w: a job of %d ranks: want at least 1", framework.ErrConfig, p.RankCount)
	}
	path, err := Resolve(p.Program)
	if err != nil {
		return err
	}
	if err := checkDirectory(p.WorkingDir); err != nil {
		return err
	}
	p.Program = path
	return nil
}

// A Job describes a job. Program and RankCount are required.
type Job struct {
	// First program.
	Part
	MoreParts []Part
	Psets     []server.Pset
	// MaxRanks is the largest number of ranks at a time, if changes of the job add some; those
	// that leave do not count. 0: the number of the first ranks.
	MaxRanks int
	// NodeCount divides the machine into that many nodes without common memory, as server.Options has it. With 0 it is one node.
	NodeCount int
	// LeaveGrace is the time of a rank that leaves by a change until it gets
	// SIGTERM. With 0 it is DefaultLeaveGrace.
	LeaveGrace time.Duration

	layout
	Binding

	// Stdin is the input of rank 0, or nil. The other ranks have none.
	Stdin *os.File
	// ExtraFiles are open in every rank, from descriptor 3 on. They stay the caller's.
	ExtraFiles []*os.File
	Output
	FailurePolicy

	// SweepsDescendants kills all remaining descendants of ranks at the end, in any session or process group. This
	// process permanently becomes the parent of orphans. Its earlier children are excluded. Without
	// it, only the ranks' process groups end with them.
	SweepsDescendants bool

	// IsControllable lets commands of the user see the job and change it (package control).
	IsControllable bool

	// Observer follows the job, or is nil.
	Observer Observer

	// Time limit, or 0. At its end, ranks report their blocked calls.
	Timeout time.Duration
	// ReportsStacks adds the goroutines to these reports.
	ReportsStacks bool
	// Signals for the ranks, or nil. See supervise.
	Signals <-chan os.Signal
	// Note gets messages for the user, one line each, such as which rank failed and how.
	// It is called by one goroutine at a time, and may block. Nil discards messages.
	Note func(string)
	// Cleanup is called once, after the end of all processes of the job, to remove resources of
	// killed ones. namespace is the job's. It may be nil.
	Cleanup func(namespace string)
}

// layout is derived from a job.
type layout struct {
	// The first one of the job included.
	allParts []Part
	// Number of the first ranks of all parts.
	initialSize int
	// nil if ranks are not bound.
	processorsByRank [][]int
}

// Binding binds ranks to processors.
type Binding struct {
	// BindsOneCore gives each rank one core, in turn; cores of their own first, then
	// their hardware threads. More ranks than cores wrap round.
	BindsOneCore bool
	// CoresPerRank, if not 0, gives each rank that many cores which no other rank gets, in the order of BindsOneCore. Run
	// returns ErrConfig if there are too few, and an added rank is refused. GOMAXPROCS of a rank is that number, and 2 for a single
	// core, unless the environment sets it.
	CoresPerRank int
}

// Output is where the output of ranks goes.
type Output struct {
	// Stdout and Stderr take the ranks' output. Ranks inherit a terminal, and /dev/null;
	// only their standard error on a terminal is a pseudo-terminal of the rank's own
	// (pty.go). Other output passes through this process. No byte is changed. Lines of
	// different ranks never mix, and a line that lacks its end is withheld until MaxLine
	// bytes. With one rank and a file, or OutputDir, every byte is written at once, and if
	// both are the same file, the order of the rank's writes is kept. A writer is called by
	// one goroutine at a time, and may block. Run waits for the reader of the output, unless the job is
	// cut short (Result.IsOutputLost).
	Stdout, Stderr io.Writer
	// TagsLines puts "[rank] " before each line, on a terminal too. A line longer than MaxLine
	// is cut into several.
	TagsLines bool
	// OutputDir, if not empty, gets a file for each rank, in place of Stdout and Stderr:
	// "rank.0", or "rank.00" to "rank.15", so that their names are sorted as ranks are.
	// It is created if necessary; files of those names are overwritten.
	OutputDir string
}

// FailurePolicy limits the effects of failed ranks.
type FailurePolicy struct {
	// ContinuesOnFailure lets the other ranks continue when one fails, with a report of the failure.
	// Otherwise they get SIGTERM after Grace, and SIGKILL after
	// another Grace.
	ContinuesOnFailure bool
	// ToleratedFailures is the number of ranks of a job with ContinuesOnFailure that may fail without an effect on its
	// status. Ranks that a change of the job has removed do not count.
	ToleratedFailures int
	// LossGrace is the time until a rank without a connection to this process counts as failed. It is the
	// ranks' bootstrap.timeout, after which the rank has disconnected from the others. With 0 it is
	// bootstrap.DefaultTimeout.
	LossGrace time.Duration
	// ProcessTimeout is the ranks' bootstrap.process_timeout. A rank that is reported dead and still
	// runs after LossGrace ends the job, or is killed with ContinuesOnFailure. With 0, none is.
	ProcessTimeout time.Duration
}

// Failure is the end of a rank that did not exit with status 0.
type Failure struct {
	Rank     int
	PID      int
	Status   int    // 1 to 255, or 128 + signal
	HowEnded string // "exited with status 3", "killed by signal 9 (killed)"

	FailedAt      time.Time // Or when the rank first took no further part.
	WasAskedToEnd bool      // By this process or the user.
	// Of standard error, if that passed through this process; of all output
	// where both streams share a pipe.
	LastLines []string
}

func (f Failure) String() string {
	return fmt.Sprintf("rank %d (pid %d) %s", f.Rank, f.PID, f.HowEnded)
}

// mostReported bounds the memory for the reports of one rank; further ones are dropped. reportCost is that of an
// empty report.
const (
	mostReported = 16 << 20
	reportCost   = 100
)

// reports collects reports, within mostReported for each rank. The first drop of a rank is logged.
type reports struct {
	keptReports []Report
	// With the dropped reports.
	bytesByRank map[int]int
	logger      *slog.Logger
}

func (r *reports) add(report Report) {
	before := r.bytesByRank[report.Rank]
	r.bytesByRank[report.Rank] += len(report.Name) + len(report.Body) + reportCost
	switch {
	case r.bytesByRank[report.Rank] <= mostReported:
		r.keptReports = append(r.keptReports, report)
	case before <= mostReported:
		r.logger.Warn(fmt.Sprintf("rank %d reported more than %d MiB: further reports are dropped", report.Rank, mostReported>>20))
	}
}

// Report is a report of a rank by bootstrap.Reporter.
type Report struct {
	Rank int
	Name string
	Body []byte
}

// Result is how a job ended.
type Result struct {
	// Status is the job's exit status: 0 if all ranks' are 0, or at most Job.ToleratedFailures failed; else that of the
	// rank that failed first; StatusTimeout if the time was up, 128 + signal
	// if the job was killed because of a second signal, 128 + SIGPIPE if the reader of
	// the output has closed it, and StatusOutput if output could not be written and no
	// rank failed before.
	Status int
	// The first failed rank comes first, see blame.go.
	Failures []Failure
	// In the order of arrival.
	Reports []Report
	// ProcessorsByRank has the processors that each rank was bound to, nil for a rank that was not
	// started. It is nil if ranks were not bound.
	ProcessorsByRank [][]int
	// IsOutputLost reports that the job was cut short (by a signal, its time limit, or the
	// context) while its output was not read, and that the output was abandoned after Grace.
	// A goroutine may still be blocked in a write to Stdout or Stderr, or in Note.
	IsOutputLost bool
	Trace        Trace
}

// Measured needs of a job. With fewer threads or less address space, the Go runtime ended a launcher in at least one of
// two runs.
const (
	threads     = 4 // of the launcher
	rankThreads = 6 // of a rank that is a program of ferry's
	space       = 160 << 20
)

// Errors of Resolve.
var (
	ErrNotFound      = errors.New("program not found")
	ErrNotExecutable = errors.New("program is not executable")
)

// Resolve returns the absolute path of program, which is a path or a name in
// PATH, or ErrNotFound or ErrNotExecutable. A relative path starts at this
// process's working directory, and not at the job's.
func Resolve(program string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
		return filepath.Abs(path)
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, exec.ErrDot):
		err = fmt.Errorf("%w: %q is not in PATH", ErrNotFound, program)
		if st, statErr := os.Stat(program); statErr == nil && !st.IsDir() {
			err = fmt.Errorf("%w; there is one in this directory: use ./%s", err, program)
		}
		return "", err
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: %s does not exist", ErrNotFound, program)
	}
	return "", fmt.Errorf("%w: %s: %w", ErrNotExecutable, program, cmp.Or(errors.Unwrap(err), err))
}

// most is the largest number of ranks at a time.
func (j *Job) most() int { return max(j.initialSize, j.MaxRanks) }

// prepare checks the job and derives its parts and bindings.
func (j *Job) prepare() error {
	j.allParts = append([]Part{j.Part}, j.MoreParts...)
	j.initialSize = 0
	for _, p := range j.allParts {
		j.initialSize += p.RankCount
	}
	if err := (limits.Need{Threads: threads + j.initialSize*rankThreads, Space: space}).Check(); err != nil {
		return fmt.Errorf("a job of %d ranks can't run here: %w", j.initialSize, err)
	}
	if j.MaxRanks != 0 && j.MaxRanks < j.initialSize {
		return fmt.Errorf("%w: at most %d ranks, but the job starts with %d", framework.ErrConfig, j.MaxRanks, j.initialSize)
	}
	for i := range j.allParts {
		if err := j.allParts[i].check(); err != nil {
			return err
		}
	}
	var err error
	if j.processorsByRank, err = j.bind(); err != nil {
		return err
	}
	if j.OutputDir != "" {
		if err := os.MkdirAll(j.OutputDir, 0o777); err != nil {
			return fmt.Errorf("%w: output directory: %w", framework.ErrConfig, err)
		}
	}
	if j.Note == nil {
		j.Note = func(string) {}
	}
	return nil
}

// Run runs the job and returns after the end of all its processes. An error means
// that the job could not start (ErrConfig for an invalid job, before any process starts), or that ctx
// ended. A failed job is a Result.
func (j Job) Run(ctx context.Context) (Result, error) {
	begin := cpu.Monotonic()
	if err := j.prepare(); err != nil {
		return Result{}, err
	}

	var mu sync.Mutex
	serverLog := make(chan string, maxLogLines)
	lost, orders := server.NewQueue[server.Lost](), server.NewQueue[server.Order]()
	waits := make(chan Report, j.most())
	logger, ending := slog.New(lines(serverLog)), make(chan struct{})
	reported := reports{bytesByRank: map[int]int{}, logger: logger}
	opt := server.Options{
		Size: j.initialSize, MaxProcs: j.most(), Nodes: j.NodeCount, Psets: j.Psets, Logger: logger, OnLost: lost.Add, Order: orders.Add,
		ProcessTimeout: j.ProcessTimeout,
		OnReport: func(rank int, name string, body []byte) {
			switch {
			case name == waitsReport:
				select {
				case waits <- Report{rank, name, body}:
				default: // There are not that many requests.
				}
			case name == trafficName && j.Observer != nil:
				j.Observer.ObserveTraffic(rank, body)
			case name != trafficName:
				mu.Lock()
				defer mu.Unlock()
				reported.add(Report{rank, name, body})
			}
		},
	}
	if j.Observer != nil {
		opt.OnPset, opt.OnProc = j.Observer.ObservePset, j.Observer.ObserveProc
	}
	srv, err := server.New(opt)
	if err != nil {
		return Result{}, err
	}
	claim, err := listen(srv)
	if err != nil {
		return Result{}, errors.Join(err, srv.Close())
	}
	defer claim.release()
	closeControl, err := j.openControl(srv, claim, ending, logger)
	if err != nil {
		logger.Warn("ferry ps and ferry resize do not find this job", "error", err)
	}

	if j.Observer != nil {
		j.Observer.Begin(Live{j.commandLine(), j.NodeCount, srv, ending})
	}
	serving := cpu.Monotonic()
	res, runErr := supervise(ctx, &j, srv, events{serverLog, lost, waits, orders, ending})
	res.Trace.CalledAt, res.Trace.ServingAt = begin, serving
	if j.Cleanup != nil {
		j.Cleanup(srv.Namespace())
	}
	closeControl()
	_ = srv.Close() // A later launcher removes its remaining files, as after a kill.
	for len(serverLog) > 0 && !res.IsOutputLost {
		j.Note(<-serverLog)
	}
	mu.Lock()
	defer mu.Unlock()
	res.Reports, res.ProcessorsByRank = reported.keptReports, j.processorsByRank
	res.Trace.TidiedUpAt = cpu.Monotonic()
	return res, runErr
}

// Trace has the times of the launcher's steps on CLOCK_MONOTONIC, which ranks use
// too. It is part of every Result, because a few readings of the clock per rank
// are cheap beside the start of a process.
type Trace struct {
	CalledAt     time.Duration // Call of Run.
	ServingAt    time.Duration // Ranks could connect from now on.
	Ranks        []RankTrace   // Of those that were started.
	RanksEndedAt time.Duration
	TidiedUpAt   time.Duration
}

// RankTrace has the times of one rank, as seen by the launcher. The start time in /proc/self/stat has a resolution of
// 10 ms, more than all traced steps together.
type RankTrace struct {
	Rank            int
	ForkRequestedAt time.Duration
	RunningAt       time.Duration // The process runs the program.
	EndSeenAt       time.Duration
}
