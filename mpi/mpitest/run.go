package mpitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// Causes of the end of a rank's context.
var (
	errOther  = errors.New("another rank has failed")
	errTime   = errors.New("the time of the job is up")
	errUndone = errors.New("the change that added this rank is undone")
)

// errGoexit is the error of a rank if its function does not return.
var errGoexit = errors.New("its goroutine has ended: a rank must return an error instead of calling t.Fatal")

const (
	defaultTimeout = 30 * time.Second
	defaultGrace   = 10 * time.Second // As of ferry run.
)

// endGrace is how long ranks may take to return once their context has ended.
const endGrace = 5 * time.Second

// RunSessions runs f as the ranks of a job, which open sessions as they like (Open),
// and close all that they have opened.
func (j Job) RunSessions(t testing.TB, f func(ctx context.Context) error) {
	t.Helper()
	if j.Timeout == 0 {
		j.Timeout = defaultTimeout
	}
	limit := ""
	if most, ok := untilDeadline(t); ok && most < j.Timeout {
		j.Timeout, limit = most, ", which go test -timeout leaves"
	}
	if j.Grace == 0 {
		j.Grace = defaultGrace
	}
	run := &run{job: j, limitReason: limit, name: fmt.Sprintf("%s %d", t.Name(), runs.Add(1)), ranks: map[int]*rank{}}
	dir, err := segments()
	if err != nil {
		t.Fatal(err)
	}
	// All goroutines of a job inherit its labels, and are found by them.
	pprof.Do(t.Context(), pprof.Labels(labelJob, run.name), func(ctx context.Context) { run.do(ctx, dir, f) })
	run.left(dir)
	if err := os.RemoveAll(dir); err != nil {
		run.wrong("%v", err)
	}
	run.mu.Lock() // A rank that hangs may still report an error.
	defer run.mu.Unlock()
	for _, line := range run.logLines {
		t.Log(line)
	}
	for _, line := range run.errorLines {
		t.Error(line)
	}
	if len(run.errorLines) > 0 {
		t.FailNow()
	}
}

// untilDeadline returns the time that a job may take before go test ends the process. The rest is for ranks that do not
// return, and for the report.
func untilDeadline(t testing.TB) (time.Duration, bool) {
	test, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return 0, false
	}
	deadline, ok := test.Deadline()
	if !ok {
		return 0, false
	}
	left := time.Until(deadline)
	return max(left-2*endGrace, left/3, time.Millisecond).Round(time.Millisecond), true
}

// segments makes a directory for the job's shared memory, in memory if possible.
func segments() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "mpitest-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "mpitest-")
}

// run is a job in progress.
type run struct {
	job Job
	// For labels. Unique in the process.
	name string
	// The reason of the timeout, for the report.
	limitReason string
	server      *server.Server

	// Of the ranks' context.
	endContexts context.CancelCauseFunc
	// Closed when that has ended.
	ctxDone <-chan struct{}

	mu sync.Mutex
	// Those that have not returned.
	ranks map[int]*rank
	// With Job.Continue, in the order of their time.
	failures   []failure
	logLines   []string
	errorLines []string
}

// failure is the error of a rank.
type failure struct {
	rank int
	err  error
}

// failed records the error of a rank, and ends the context of all ranks, unless the job continues. The first error is the job's. Later ones
// follow from it, and are in the log. So the context ends after the error is recorded. Otherwise an error
// that the end of the context causes in another rank could be the first.
func (r *run) failed(rank int, err error) {
	if r.tolerated(rank, err) {
		return
	}
	r.record(rank, err)
	r.endContexts(fmt.Errorf("%w: rank %d: %w", errOther, rank, err))
}

func (r *run) record(rank int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch line := fmt.Sprintf("rank %d: %v", rank, err); {
	case slices.Contains(r.errorLines, line) || errors.Is(err, errOther):
	case errors.Is(err, errTime):
		r.errorLines = append(r.errorLines, fmt.Sprintf("rank %d did not end within %v%s: %v", rank, r.job.Timeout, r.limitReason, err))
	case len(r.errorLines) == 0:
		r.errorLines = append(r.errorLines, line)
	case !slices.Contains(r.logLines, "afterwards "+line):
		r.logLines = append(r.logLines, "afterwards "+line)
	}
}

// tolerated reports the failure of a rank to the server, if the job continues without the rank. The job does if a change excuses
// the rank, and with Job.Continue, unless it is ending.
func (r *run) tolerated(rank int, err error) bool {
	isExcused := r.server.IsExcused(rank)
	if !isExcused && (!r.job.Continue || r.isEnding()) {
		return false
	}
	line := fmt.Sprintf("the job continues without rank %d: %v", rank, err)
	r.mu.Lock()
	switch isKnown := slices.ContainsFunc(r.failures, func(f failure) bool { return f.rank == rank }); {
	case !isExcused && !isKnown:
		r.failures = append(r.failures, failure{rank, err})
	case !slices.Contains(r.logLines, line):
		r.logLines = append(r.logLines, line)
	}
	r.mu.Unlock()
	r.server.ProcExited(rank, err.Error())
	return true
}

// isEnding reports whether the context of the ranks has ended.
func (r *run) isEnding() bool {
	select {
	case <-r.ctxDone:
		return true
	default:
		return false
	}
}

// settleFailures records the failures that no change excuses at the end of the job.
func (r *run) settleFailures() {
	r.mu.Lock()
	failures := r.failures
	r.failures = nil
	r.mu.Unlock()
	for _, f := range failures {
		if !r.server.IsExcused(f.rank) {
			r.record(f.rank, f.err)
		}
	}
}

func (r *run) wrong(format string, args ...any) {
	r.mu.Lock()
	r.errorLines = append(r.errorLines, fmt.Sprintf(format, args...))
	r.mu.Unlock()
}

// present returns the ranks that have not returned. r.mu is held.
func (r *run) present() []int {
	var ranks []int
	for rank := range r.ranks {
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	return ranks
}

// hangs records an error for each rank that has not returned.
func (r *run) hangs(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rank := range r.present() {
		r.errorLines = append(r.errorLines, fmt.Sprintf("rank %d hangs: it has not returned %v after its context ended (%v); it is at\n%s",
			rank, r.endGrace(), cause, stacks(r.name, fmt.Sprint(rank))))
	}
}

func (r *run) endGrace() time.Duration { return min(endGrace, r.job.Timeout) }

// dump records the stacks of the ranks that have not returned.
func (r *run) dump() {
	r.server.Dump() // On standard error, as under a launcher.
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rank := range r.present() {
		r.logLines = append(r.logLines, fmt.Sprintf("when the time was up rank %d was at\n%s", rank, stacks(r.name, fmt.Sprint(rank))))
	}
}

// left checks that no segment and no goroutine of the job is left.
func (r *run) left(dir string) {
	r.mu.Lock()
	failed := len(r.errorLines) > 0
	r.mu.Unlock()
	if failed { // A rank that hangs leaves everything it has.
		return
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		r.wrong("segments are left: %v %v", files, err)
		return
	}
	for wait := time.Millisecond; ; wait *= 2 {
		stacks := stacks(r.name, "")
		if stacks == "" {
			return
		}
		if wait > leakPatience {
			r.wrong("goroutines are left:\n%s", stacks)
			return
		}
		time.Sleep(wait) // Some are about to end.
	}
}

// leakPatience is the longest pause between two checks for goroutines.
const leakPatience = time.Second
