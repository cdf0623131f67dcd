package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

// A Pool starts workers. Set its fields before the first call.
type Pool struct {
	// WorkerProgram is started with WorkerArgs and a task, and calls Work.
	WorkerProgram string
	WorkerArgs    []string
	// NAME=VALUE, of all workers.
	SetParams []string
	// MaxParallel is the number of concurrent stacks. Benchmarks run alone.
	MaxParallel int
	// Cleanup removes the files of killed processes; see launch.Job.
	Cleanup func(namespace string)
	// With nil, the load of the system is used.
	LoadPerProcessor func() float64
}

// Survey surveys a stack in a worker. It is a plan.SurveyFunc.
func (p *Pool) Survey(ctx context.Context, s report.Stack, c plan.Column, env []string) (a plan.SurveyResult, ok bool) {
	limit := plan.SurveyLimit
	if c.Name == plan.Reaches {
		limit = plan.ReachesLimit
	}
	end := p.runWorker(ctx, assignment{stack: s, task: task{Column: c}, workerEnv: env, hangLimit: limit, onEvent: func(e Event) error {
		if e.Survey != nil {
			a = *e.Survey
		}
		if e.Status == report.Unavailable {
			a.AbsentReason = e.Reason
		}
		return nil
	}})
	a.LibraryLog = end.outputText
	return a, a.AbsentReason != "" || !end.isLost()
}

// Run executes the plan. If ctx is canceled, the report is partial.
func (p *Pool) Run(ctx context.Context, r *plan.Record) *report.Report {
	runs := make([]*stackRun, len(r.Stacks))
	var g errgroup.Group
	g.SetLimit(max(p.MaxParallel, 1))
	for i := range runs {
		g.Go(func() error {
			runs[i] = p.runStack(ctx, r, i)
			return nil
		})
	}
	_ = g.Wait()
	for i, l := range runs {
		for _, c := range r.ColumnsByStack[i] {
			if l != nil && c.BenchArgs != nil {
				l.runCases(ctx, c)
			}
		}
	}
	if ctx.Err() != nil {
		return r.Complete(context.Cause(ctx).Error())
	}
	return r.Complete("")
}

// runStack runs the cases of a stack except the benchmarks. It returns nil if the stack cannot be opened.
func (p *Pool) runStack(ctx context.Context, r *plan.Record, i int) *stackRun {
	l := &stackRun{Pool: p, record: r, stack: &r.Report.Stacks[i], retryReasons: map[string]string{}}
	for n, c := range r.ColumnsByStack[i] {
		switch {
		case l.stack.AbsentReason != "":
			r.AddRow(*l.stack, r.Row(*l.stack, c, report.OpenCase, l.stack.Absent(), l.stack.AbsentReason))
			return nil
		case c.BenchArgs != nil:
		case l.runCases(ctx, c).Status != report.Pass && n == 0:
			return nil
		}
	}
	return l
}

// A stackRun is the run of one stack.
type stackRun struct {
	*Pool
	record *plan.Record
	stack  *report.Stack
	// Limits of the hung cases that are not excluded.
	timeoutTotal time.Duration
	// retryReasons has the reason of the retry, by case.
	retryReasons map[string]string
}

const (
	// tick is the unit of limits. This process counts its own ticks, so that the time of a suspended machine or a stopped
	// run does not count.
	tick = 100 * time.Millisecond
	// dumpTicks is the time for the ranks' state dumps before the job is canceled. stackDumpTicks is the time for a clean
	// end before SIGQUIT prints the goroutines.
	dumpTicks, stackDumpTicks = 5, 15
	// drainGrace limits the wait for reports after the processes have ended. Hidden children may hold the pipe open.
	drainGrace = time.Second
)

// countTicks returns a limit in ticks, rounded up. One is added because the first may come at once.
func countTicks(limit time.Duration) int { return int((limit+tick-1)/tick) + 1 }

// errLimit cancels a job that has exceeded its limit.
var errLimit = errors.New("it exceeded its limit")

// An assignment is a task for a worker with the options of its start.
type assignment struct {
	stack     report.Stack
	task      task
	workerEnv []string
	// Time without an event after which the worker hangs.
	hangLimit time.Duration
	// onEvent receives the worker's events one at a time, all before runWorker returns. An error rejects the event
	// and ends the worker.
	onEvent func(Event) error
	// Of the processes. With nil, only workerExit has the output.
	outputExcerpt *excerpt
}

// A workerExit is the end of the processes of a worker.
type workerExit struct {
	jobResult launch.Result
	// The start failed, or the job was canceled.
	err        error
	isHung     bool
	rankCount  int
	outputText string
}

// isLost reports whether the processes ended abnormally.
func (e workerExit) isLost() bool { return e.err != nil || e.isHung || e.jobResult.Status != 0 }

// describe returns a short description of the end.
func (e workerExit) describe() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case len(e.jobResult.Failures) == 0:
		return "its process ended without a result"
	}
	first := e.jobResult.Failures[0]
	what := "its process " + first.HowEnded
	if e.rankCount > 1 {
		what = fmt.Sprintf("rank %d %s", first.Rank, first.HowEnded)
	}
	if cause := findCause(e.outputText); cause != "" {
		what += ": " + cause
	}
	return what
}

// runWorker runs an assignment and returns after the last process has ended. After the limit without an event the
// ranks dump their state and get SIGTERM, so that a case can still report its error.
func (p *Pool) runWorker(ctx context.Context, a assignment) workerExit {
	a.task.ViaComponent = a.stack.ViaComponent
	text, err := json.Marshal(a.task)
	if err != nil {
		return workerExit{err: err}
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return workerExit{err: fmt.Errorf("pipe for reports: %w", err)}
	}
	if a.outputExcerpt == nil {
		a.outputExcerpt = &excerpt{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var hasEvents atomic.Bool
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		defer pr.Close()
		err := readEvents(pr, func(e Event) error {
			hasEvents.Store(true)
			return a.onEvent(e)
		})
		if err != nil {
			cancel(err)
		}
	}()
	signals := make(chan os.Signal, 1)
	job := launch.Job{
		Part: launch.Part{
			Program: p.WorkerProgram, Args: slices.Concat(p.WorkerArgs, []string{string(text)}), RankCount: max(a.task.ProcessCount, 1),
			Env: slices.Concat(settings.Environ(slices.Concat(p.SetParams, a.stack.SetParams)), a.workerEnv),
		},
		Binding: launch.Binding{BindsOneCore: a.task.BenchArgs != nil}, ExtraFiles: []*os.File{pw}, Output: launch.Output{Stdout: a.outputExcerpt, Stderr: a.outputExcerpt},
		Signals: signals, Cleanup: p.Cleanup,
	}
	job.MaxRanks = job.RankCount + a.task.AddableProcesses
	job.ContinuesOnFailure, job.ToleratedFailures = a.task.KillableRanks > 0, a.task.KillableRanks
	end := workerExit{rankCount: job.RankCount}
	done := make(chan struct{})
	go func() {
		defer close(done)
		end.jobResult, end.err = job.Run(ctx)
	}()
	end.isHung = supervise(a.hangLimit, &hasEvents, signals, cancel, done)
	if cause := context.Cause(ctx); cause != nil {
		end.err = cause
	}
	pw.Close()
	// It fails only after the reader has returned.
	_ = pr.SetReadDeadline(time.Now().Add(drainGrace))
	<-readerDone
	end.outputText = a.outputExcerpt.String()
	return end
}

// supervise ends a job after the limit without an event, and returns when done is closed.
func supervise(limit time.Duration, hasEvents *atomic.Bool, signals chan<- os.Signal, cancel context.CancelCauseFunc, done <-chan struct{}) (isHung bool) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for left := countTicks(limit); ; left-- {
		switch {
		case left == 0:
			isHung = true
			signals <- syscall.SIGUSR2
		case left == -dumpTicks:
			cancel(errLimit)
		case left == -dumpTicks-stackDumpTicks:
			signals <- syscall.SIGQUIT
		}
		select {
		case <-done:
			return isHung
		case <-ticker.C:
		}
		if hasEvents.Swap(false) && !isHung {
			left = countTicks(limit) + 1
		}
	}
}

// readEvents passes the events on r to onEvent until the end of r. Any other line is an error.
func readEvents(r io.Reader, onEvent func(Event) error) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e Event
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		err := d.Decode(&e)
		if err == nil {
			err = onEvent(e)
		}
		if err != nil {
			return fmt.Errorf("its process wrote %.80q where its reports go", lines.Bytes())
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errors.New("its process wrote a line without an end where its reports go")
	}
	return nil // End of the pipe, or deadline.
}
