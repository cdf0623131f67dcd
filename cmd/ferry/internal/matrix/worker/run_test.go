package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// envPIDs is the directory of the workers' process ids.
const envPIDs = "MATRIX_TEST_PIDS"

// TestMain is also the worker of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "worker" {
		if err := badWorker(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "ferry matrix worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// badWorker has cases named for their outcome, with an optional number.
func badWorker(text string) error {
	w := &worker{reportPipe: os.NewFile(3, "reports"), stderr: os.Stderr}
	if err := json.Unmarshal([]byte(text), &w.task); err != nil {
		return err
	}
	w.rank, _ = strconv.Atoi(os.Getenv(framework.EnvName("bootstrap.local.rank")))
	pid := filepath.Join(os.Getenv(envPIDs), strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(pid, nil, 0o600); err != nil {
		return err
	}
	for _, cell := range w.task.CellNames {
		w.Begin(cell)
		if w.task.Name == plan.Providers || w.task.Name == plan.Survey {
			w.answerSurvey(cell)
			continue
		}
		switch strings.TrimRight(w.task.CaseName(cell), "0123456789") {
		case "segv":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
			time.Sleep(time.Hour)
		case "killed":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour)
		case "leaves":
			return nil
		case "limit":
			w.End(Event{Status: report.Skip, Reason: w.task.CaseLimit.String()})
		case "errs":
			return errors.New("the sea is rough")
		case "busy", "stuck":
			n, step := uint64(0), uint64(1)
			if cell == w.task.Name+"/stuck" {
				step = 0
			}
			stop := reportActivity(20*time.Millisecond, func() uint64 { n += step; return n }, func() { w.writeEvent(Event{Case: cell}) })
			time.Sleep(4 * busyLimit)
			stop()
			w.End(Event{Status: report.Pass})
		case "garbage":
			fmt.Fprintln(w.reportPipe, "not a report")
			time.Sleep(time.Hour)
		case "unasked":
			w.writeEvent(Event{Case: "not requested", Status: report.Pass})
			time.Sleep(time.Hour)
		case "deaf":
			signal.Ignore(syscall.SIGTERM)
			time.Sleep(time.Hour)
		case "first": // It hangs in the first process only.
			if _, err := os.ReadFile(filepath.Join(os.Getenv(envTries), cell[len(w.task.Name)+1:])); err == nil {
				w.End(Event{Status: report.Pass})
				continue
			}
			fallthrough
		case "always":
			if err := appendByte(filepath.Join(os.Getenv(envTries), cell[len(w.task.Name)+1:])); err != nil {
				return err
			}
			time.Sleep(time.Hour)
		case "obeys":
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGTERM)
			<-c
			w.End(Event{Status: report.Fail, Reason: "the frame never came"})
			return nil
		case "orphans":
			// A child in the process group of the worker.
			c := exec.Command("sleep", "100")
			if err := c.Start(); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(os.Getenv(envPIDs), strconv.Itoa(c.Process.Pid)), nil, 0o600); err != nil {
				return err
			}
			panic("with a child")
		case "skips":
			w.End(Event{Status: report.Skip, Reason: "too few ranks"})
			panic("later")
		case "after":
			w.End(Event{Status: report.Pass})
			panic("later")
		case "second":
			if w.rank == 1 {
				w.End(Event{Status: report.Fail, Reason: "wrong byte"})
				continue
			}
			w.End(Event{Status: report.Pass})
		case "fail":
			fmt.Println("what it printed")
			w.End(Event{Status: report.Fail, Reason: "wrong byte"})
			return nil
		default:
			w.End(Event{Status: report.Pass})
		}
	}
	return nil
}

// envTries names the directory with badWorker's counts of tries.
const envTries = "MATRIX_TEST_TRIES"

// appendByte appends a byte to a file.
func appendByte(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("."))
	return errors.Join(err, f.Close())
}

// A badPool is a pool of bad workers with a plan.
type badPool struct {
	*plan.Plan
	*Pool
	Observer report.Observer
}

func (b *badPool) run(ctx context.Context) *report.Report {
	return b.Pool.Run(ctx, b.Begin(b.Observer))
}

func newBad(t *testing.T, ranks int, stacks ...[]string) *badPool {
	t.Helper()
	pids := t.TempDir()
	t.Setenv(envPIDs, pids)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if _, ok := os.LookupEnv("GORACE"); !ok {
		t.Setenv("GORACE", "atexit_sleep_ms=0") // A race build sleeps for a second at each exit.
	}
	t.Cleanup(func() { checkProcessesEnded(t, pids) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &badPool{
		Plan: &plan.Plan{Request: &plan.Request{Suite: plan.Suite{Name: "test"}, CaseLimit: 20 * tick}},
		Pool: &Pool{WorkerProgram: self, WorkerArgs: []string{"worker"}, MaxParallel: len(stacks), LoadPerProcessor: func() float64 { return 0 }},
	}
	for i, cases := range stacks {
		b.Stacks = append(b.Stacks, report.Stack{Name: fmt.Sprint("stack", i), ViaComponent: "btl self"})
		open := plan.Column{Name: report.OpenCase, ProcessCount: 1, CellNames: []string{report.OpenCase}}
		b.ColumnsByStack = append(b.ColumnsByStack, []plan.Column{open, plan.NewColumn("kit", ranks, cases...)})
	}
	return b
}

// checkProcessesEnded checks that all recorded processes have ended.
func checkProcessesEnded(t *testing.T, pids string) {
	t.Helper()
	entries, err := os.ReadDir(pids)
	if err != nil || len(entries) == 0 {
		t.Fatalf("no worker has run: %v", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil; {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if strings.Contains(string(stat), ") Z ") {
				break // A zombie whose parent does not reap it.
			}
			if time.Now().After(deadline) {
				t.Fatalf("process %d was left: %s", pid, stat)
			}
		}
	}
}

// outcome returns the status and the reason of a case.
func outcome(got *report.Report, stack, testCase string) (report.Status, string) {
	for _, row := range got.Rows {
		if row.Stack == stack && row.Case == "kit/"+testCase {
			return row.Status, row.Reason
		}
	}
	return "", "no row"
}

func TestRun_WorkerIsLost_OnlyItsCaseFails(t *testing.T) {
	table := []struct {
		name   string
		status report.Status
		reason string // Substring.
	}{
		{"segv", report.Fail, "its process exited with status 2: SIGSEGV: segmentation violation"},
		{"killed", report.Fail, "its process killed by signal 9 (killed)"},
		{"leaves", report.Fail, "its process ended without a result"},
		{"errs", report.Fail, "its process exited with status 1: ferry matrix worker: the sea is rough"},
		{"garbage", report.Fail, `its process wrote "not a report" where its reports go`},
		{"unasked", report.Fail, "where its reports go"},
		{"deaf", report.Timeout, "it did not end within 2s"},
		{"obeys", report.Timeout, "it did not end within 2s: the frame never came"},
		{"orphans", report.Fail, "its process exited with status 2: panic: with a child"},
		{"after", report.Fail, "it passed, and then its process exited with status 2: panic: later"},
		{"skips", report.Fail, "it was skipped, and then its process exited with status 2: panic: later: too few ranks"},
		{"fail", report.Fail, "wrong byte"},
		{"pass", report.Pass, ""},
	}
	var stacks [][]string
	for _, c := range table {
		stacks = append(stacks, []string{"before", c.name, "behind"})
	}
	r := newBad(t, 0, stacks...)
	got := r.run(t.Context())
	for i, c := range table {
		stack := fmt.Sprint("stack", i)
		if s, why := outcome(got, stack, c.name); s != c.status || !strings.Contains(why, c.reason) || (why == "") != (s == report.Pass) {
			t.Errorf("%s: %s: %s; want %s: %s", c.name, s, why, c.status, c.reason)
		}
		for _, name := range []string{"before", "behind"} {
			if s, why := outcome(got, stack, name); s != report.Pass {
				t.Errorf("%s: %s of it: %s: %s", c.name, name, s, why)
			}
		}
	}
	if len(got.Rows) != 4*len(table) || got.EndReason != "" || !got.Failed() {
		t.Errorf("%d rows, partial %q, failed %t", len(got.Rows), got.EndReason, got.Failed())
	}
	for _, row := range got.Rows {
		if row.Case == "kit/fail" && strings.TrimSpace(row.OutputTail) != "what it printed" {
			t.Errorf("output of fail: %q", row.OutputTail)
		}
	}
}

// The other ranks' events are complete, too.
func TestRun_RankFails_IsNamed(t *testing.T) {
	r := newBad(t, 2, []string{"pass", "second", "segv"})
	r.Stacks[0].ViaComponent = "btl shm"
	got := r.run(t.Context())
	if s, why := outcome(got, "stack0", "second"); s != report.Fail || why != "rank 1: wrong byte" {
		t.Errorf("second: %s: %s", s, why)
	}
	if s, why := outcome(got, "stack0", "segv"); s != report.Fail || !strings.HasPrefix(why, "rank ") || !strings.Contains(why, "SIGSEGV") {
		t.Errorf("segv: %s: %s", s, why)
	}
}

func TestRun_ThreeConsecutiveLosses_SkipTheColumn(t *testing.T) {
	r := newBad(t, 0, []string{"killed1", "killed2", "pass1", "killed3", "killed4", "killed5", "pass2"})
	got := r.run(t.Context())
	if s, why := outcome(got, "stack0", "killed5"); s != report.Fail {
		t.Errorf("the third in a row: %s: %s", s, why)
	}
	if s, why := outcome(got, "stack0", "pass2"); s != report.Skip || why != "not run: 3 cases in a row were lost" || !got.Rows[len(got.Rows)-1].IsAbandoned {
		t.Errorf("behind: %s: %s: %+v", s, why, got.Rows)
	}
}

// Otherwise the cases after them would be skipped, and the run would pass.
func TestRun_LossesAreExcluded_StackContinues(t *testing.T) {
	r := newBad(t, 0, []string{"killed1", "killed2", "killed3", "pass1", "obeys1", "obeys2", "pass2"})
	r.CaseLimit = 5 * tick
	r.Suite.HangBudget = r.CaseLimit
	var err error
	if r.Exclude, err = plan.ParseExclusions("x.yaml", []byte("- {stack: stack0, case: kit/(killed|obeys).*, reason: known}")); err != nil {
		t.Fatal(err)
	}
	got := r.run(t.Context())
	for _, name := range []string{"pass1", "pass2"} {
		if s, why := outcome(got, "stack0", name); s != report.Pass {
			t.Errorf("%s: %s: %s", name, s, why)
		}
	}
	if got.Failed() {
		t.Errorf("%+v", got.Rows)
	}
}

func TestRun_StackHangs_SkipsItsCases(t *testing.T) {
	r := newBad(t, 0, []string{"obeys1", "pass1", "obeys2", "pass2"}, []string{"pass1"})
	r.Suite.HangBudget = 2 * r.CaseLimit
	got := r.run(t.Context())
	if s, why := outcome(got, "stack0", "pass1"); s != report.Pass {
		t.Errorf("after one: %s: %s", s, why)
	}
	if s, why := outcome(got, "stack0", "pass2"); s != report.Skip || !strings.HasPrefix(why, "not run: ") {
		t.Errorf("after two: %s: %s", s, why)
	}
	if s, why := outcome(got, "stack1", "pass1"); s != report.Pass {
		t.Errorf("another stack: %s: %s", s, why)
	}
}

// They have a limit of their own.
func TestRun_LongLimit_AppliesToConformanceCases(t *testing.T) {
	r := newBad(t, 0, []string{"limit"})
	r.CaseLimit = time.Hour
	if s, why := outcome(r.run(t.Context()), "stack0", "limit"); why != "2h0m0s" {
		t.Errorf("the worker's limit: %s: %s", s, why)
	}
	text, err := json.Marshal(task{Column: plan.NewColumn("conform/1", 1, "group/of a communicator"), CaseLimit: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FERRY_BTL_SHM_DIR", t.TempDir()) // Its session stays open.
	var out, errs strings.Builder
	if err := Work(t.Context(), nil, nil, string(text), &out, &errs); err == nil || !strings.Contains(out.String(), "hung for 1ns") {
		t.Errorf("%v: %s%s", err, &out, &errs)
	}
}

// Without the rank, two events would count as one that is repeated.
func TestWork_OpenFails_EventHasRank(t *testing.T) {
	t.Setenv(framework.EnvName("bootstrap.local.rank"), "1")
	text, err := json.Marshal(task{Column: plan.Column{Name: report.OpenCase, ProcessCount: 2, CellNames: []string{report.OpenCase}}})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	if err := Work(t.Context(), nil, nil, string(text), &out, &errs, mpi.WithParam("pml", "nosuch")); err == nil {
		t.Error("it opens")
	}
	n := 0
	err = readEvents(strings.NewReader(out.String()), func(e Event) error {
		if n++; e.Rank != 1 || e.Case != report.OpenCase {
			t.Errorf("%+v", e)
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Errorf("%v: %s", err, &out)
	}
}

// The transport reports its error at the end of its own limit.
func TestLimitOf_ProviderHangs_ExceedsItsSelftest(t *testing.T) {
	var p struct {
		Deadline time.Duration `param:"selftest_timeout" default:"0s" level:"tuner" scope:"process" doc:"As mtl/ofi."`
	}
	values, err := components.Standard().Defaults()
	if err == nil {
		err = values.Decode("mtl.ofi", &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.Deadline == 0 {
		t.Fatal("mtl.ofi.selftest_timeout has no default")
	}
	for _, suite := range []plan.Suite{plan.Quick(), plan.Full()} {
		r, stack := &plan.Request{Suite: suite, CaseLimit: suite.CaseLimit}, report.Stack{Name: "cm+ofi tcp", ViaComponent: "mtl ofi"}
		if got := r.LimitOf(stack, plan.Column{Name: report.OpenCase}); got < p.Deadline*3/2+time.Second {
			t.Errorf("%s: open has %v, and a provider %v, and half as long again", suite.Name, got, p.Deadline)
		}
		if got := r.LimitOf(stack, plan.Column{Name: "mtltest"}); got != suite.CaseLimit {
			t.Errorf("%s: other cases have %v without parameters", suite.Name, got)
		}
	}
}

// busyLimit is the limit of cases that exceed it.
const busyLimit = time.Second

// On a busy machine one message size of a benchmark may exceed the limit of a case.
func TestRun_BenchmarkMakesProgress_HasNoLimit(t *testing.T) {
	r := newBad(t, 0, []string{"busy"}, []string{"stuck"})
	r.CaseLimit = busyLimit
	got := r.run(t.Context())
	if s, why := outcome(got, "stack0", "busy"); s != report.Pass {
		t.Errorf("%s: %s", s, why)
	}
	if s, why := outcome(got, "stack1", "stuck"); s != report.Timeout {
		t.Errorf("one that does not go on: %s: %s", s, why)
	}
}

func TestRun_LimitBelowTick_IsATimeout(t *testing.T) {
	r := newBad(t, 0, []string{"deaf"})
	r.Suite.OpenLimit, r.CaseLimit = time.Minute, tick/2
	got := r.run(t.Context())
	if s, why := outcome(got, "stack0", "deaf"); s != report.Timeout || why != "it did not end within 50ms" {
		t.Errorf("%s: %s", s, why)
	}
}

// A cancelObserver cancels a run when a case begins.
type cancelObserver struct {
	cancelAt  string
	cancel    context.CancelCauseFunc
	caseCount int
	rows      []report.Row
}

func (w *cancelObserver) Begin(_ []report.Stack, cases map[string]int) { w.caseCount = cases["stack0"] }
func (w *cancelObserver) Done(row report.Row)                          { w.rows = append(w.rows, row) }
func (w *cancelObserver) Running(_, testCase string) {
	if testCase == w.cancelAt {
		w.cancel(errors.New("stopped"))
	}
}

func TestRun_IsInterrupted_ReportIsPartial(t *testing.T) {
	r := newBad(t, 0, []string{"pass", "obeys", "behind"})
	r.CaseLimit = time.Hour
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &cancelObserver{cancelAt: "kit/obeys", cancel: cancel}
	r.Observer = w
	got := r.run(ctx)
	if got.EndReason != "stopped" || w.caseCount != 4 {
		t.Errorf("partial %q; %d cases announced", got.EndReason, w.caseCount)
	}
	if s, why := outcome(got, "stack0", "pass"); s != report.Pass {
		t.Errorf("before: %s: %s", s, why)
	}
	for _, name := range []string{"obeys", "behind"} {
		if s, why := outcome(got, "stack0", name); s != report.Skip || why != "not run: stopped" {
			t.Errorf("%s: %s: %s", name, s, why)
		}
	}
	if got.Failed() {
		t.Error("cases that did not run have failed")
	}
}

// It has one row, for report.OpenCase.
func TestRun_StackIsUnavailable_RunsNoCase(t *testing.T) {
	r := newBad(t, 0, []string{"pass"}, []string{"pass"})
	r.Stacks[1].AbsentReason, r.ColumnsByStack[1] = "no such device", r.ColumnsByStack[1][:1]
	got := r.run(t.Context())
	last := got.Rows[len(got.Rows)-1]
	if len(got.Rows) != 3 || last.Case != report.OpenCase || last.Status != report.Unavailable || last.Reason != "no such device" {
		t.Errorf("%+v", got.Rows)
	}
	if got.Failed() {
		t.Error("an unavailable stack has failed")
	}
	r.Stacks[1].SurveyHangs = true
	got = r.run(t.Context())
	if last := got.Rows[len(got.Rows)-1]; last.Status != report.Timeout || last.Reason != "no such device" || !got.Failed() {
		t.Errorf("it hangs: %+v", got.Rows)
	}
}

// A line above PIPE_BUF could mix with those of other ranks.
func TestWriteEvent_LongReason_IsTruncated(t *testing.T) {
	var out, errs strings.Builder
	w := &worker{reportPipe: &out, stderr: &errs}
	w.writeEvent(Event{Case: "x", Status: report.Fail, Reason: strings.Repeat("ä\n", eventLimit)})
	if len(out.String()) > eventLimit || len(errs.String()) < 3*eventLimit {
		t.Errorf("%d bytes in the report, %d beside it", len(out.String()), len(errs.String()))
	}
	var got Event
	if err := readEvents(strings.NewReader(out.String()), func(e Event) error { got = e; return nil }); err != nil || got.Status != report.Fail || len(got.Reason) < 1000 {
		t.Errorf("%v %+v", err, got)
	}
}
