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

// A Pool starts workers. Fields are set before the first call.
type Pool struct {
	// Program is started with Args and a task, for Work.
	Program string
	Args    []string
	Set     []string // parameters (NAME=VALUE) for all workers
	// Lanes is how many stacks run at the same time; benchmarks run alone.
	MaxParallel int
	// Cleanup removes what the processes of a job have left that were killed; see
	// launch.Job.
	Cleanup func(namespace string)
	// Load returns the load of the machine per processor. Nil is that of the system.
	Load func() float64
}

// Ask has a worker survey a stack: it is a plan.Ask.
func (p *Pool) Survey(ctx context.Context, s report.Stack, c plan.Column, env []string) (a plan.Answer, ok bool) {
	limit := plan.SurveyLimit
	if c.Name == plan.Reaches {
		limit = plan.ReachesLimit
	}
	end := p.runWorker(ctx, assignment{stack: s, task: task{Column: c}, env: env, limit: limit, onEvent: func(e Event) error {
		if e.Answer != nil {
			a = *e.Answer
		}
		if e.Status == report.Unavailable {
			a.Absent = e.Reason
		}
		return nil
	}})
	a.Log = end.output
	return a, a.Absent != "" || !end.isLost()
}

// Run does what the plan says. When ctx ends the report has what there is by then,
// and says so.
func (p *Pool) Run(ctx context.Context, r *plan.Record) *report.Report {
	lanes := make([]*stackRun, len(r.Stacks)) // nil: it could not be opened
	var g errgroup.Group
	g.SetLimit(max(p.MaxParallel, 1))
	for i := range lanes {
		g.Go(func() error {
			lanes[i] = p.runStack(ctx, r, i)
			return nil
		})
	}
	_ = g.Wait() // none of them gives one
	for i, l := range lanes {
		for _, c := range r.Columns[i] {
			if l != nil && c.Bench != nil {
				l.runCases(ctx, c)
			}
		}
	}
	if ctx.Err() != nil {
		return r.Complete(context.Cause(ctx).Error())
	}
	return r.Complete("")
}

// stack runs what one stack has, without the benchmarks. It returns nil if the
// stack could not be opened.
func (p *Pool) runStack(ctx context.Context, r *plan.Record, i int) *stackRun {
	l := &stackRun{Pool: p, record: r, stack: &r.Report.Stacks[i], retryReasons: map[string]string{}}
	for n, c := range r.Columns[i] {
		switch {
		case l.stack.Reason != "":
			r.Done(*l.stack, r.Row(*l.stack, c, report.OpenCase, l.stack.Absent(), l.stack.Reason))
			return nil
		case c.Bench != nil:
		case l.runCases(ctx, c).Status != report.Pass && n == 0:
			return nil
		}
	}
	return l
}

// A lane is the run of one stack.
type stackRun struct {
	*Pool
	record       *plan.Record
	stack        *report.Stack
	timeoutTotal time.Duration // for cases that did not end, and are not excluded
	// retried has the reason of the second try, by case.
	retryReasons map[string]string
}

const (
	// tick is the unit of limits. They count the ticks that this process has seen: a
	// machine that was suspended, or a run that was stopped, makes nobody late.
	tick = 100 * time.Millisecond
	// dumpTicks is how long ranks have to say what they wait for, before they end, and
	// stackTicks how long they have for that, before Go's runtime says where they are.
	dumpTicks, stackDumpTicks = 5, 15
	// drainGrace is how long reports are awaited after the processes have ended:
	// what they started, and hid, may hold the pipe open.
	drainGrace = time.Second
)

// ticks is a limit in ticks, rounded up: the first may come at once.
func countTicks(limit time.Duration) int { return int((limit+tick-1)/tick) + 1 }

// errLimit ends a job whose time is up.
var errLimit = errors.New("its time is up")

// An assignment is a task for a worker, and how to start it.
type assignment struct {
	stack report.Stack
	task  task
	env   []string
	limit time.Duration // after which a worker of which nothing is heard hangs
	// hear is told what the worker reports. Calls come one at a time, and all
	// before work returns.
	// An error says that this is not a report.
	onEvent func(Event) error
	output  *excerpt // takes what the processes write; nil: the ending has it
}

// An ending is how the processes of a job have ended.
type workerExit struct {
	result launch.Result
	err    error // it was not started, or did not end by itself
	isHung bool  // its time was up
	ranks  int
	output string
}

// lost says that the processes did not end in good order.
func (e workerExit) isLost() bool { return e.err != nil || e.isHung || e.result.Status != 0 }

// how says in a few words how the processes have ended.
func (e workerExit) describe() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case len(e.result.Failures) == 0:
		return "its process ended without a result"
	}
	first := e.result.Failures[0]
	what := "its process " + first.How
	if e.ranks > 1 {
		what = fmt.Sprintf("rank %d %s", first.Rank, first.How)
	}
	if cause := findCause(e.output); cause != "" {
		what += ": " + cause
	}
	return what
}

// work has a worker do its assignment, and returns when no process of it is left.
// When nothing is heard of it for its limit, work asks the ranks what they wait for, and
// ends them: gently at first, so that a case can say what is wrong with its own words.
func (p *Pool) runWorker(ctx context.Context, a assignment) workerExit {
	a.task.Via = a.stack.Via
	text, err := json.Marshal(a.task)
	if err != nil {
		return workerExit{err: err}
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return workerExit{err: fmt.Errorf("pipe for reports: %w", err)}
	}
	if a.output == nil {
		a.output = &excerpt{}
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
		Program: p.Program, Args: slices.Concat(p.Args, []string{string(text)}), N: max(a.task.Ranks, 1), Bind: a.task.Bench != nil,
		Env: slices.Concat(settings.Environ(slices.Concat(p.Set, a.stack.Set)), a.env), Files: []*os.File{pw}, Stdout: a.output, Stderr: a.output,
		Signals: signals, Cleanup: p.Cleanup,
	}
	job.MaxRanks = job.N + a.task.Room
	job.Continue, job.Tolerate = a.task.Deaths > 0, a.task.Deaths
	end := workerExit{ranks: job.N}
	done := make(chan struct{})
	go func() {
		defer close(done)
		end.result, end.err = job.Run(ctx)
	}()
	end.isHung = supervise(a.limit, &hasEvents, signals, cancel, done)
	if cause := context.Cause(ctx); cause != nil {
		end.err = cause
	}
	pw.Close()
	// It fails only when the listener has gone.
	_ = pr.SetReadDeadline(time.Now().Add(drainGrace))
	<-readerDone
	end.output = a.output.String()
	return end
}

// watch ends a job of which there is no news for limit, and returns when it is done.
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

// listen hands on the events that workers write to r. It returns nil at the end,
// and an error when something else comes.
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
	return nil // the pipe's end, or the deadline
}
