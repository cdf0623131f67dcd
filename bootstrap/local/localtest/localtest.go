// Package localtest runs a test as several processes: the test binary starts
// copies of itself as the ranks of a job, under a bootstrap server inside the
// test. Tests of everything above the bootstrap use it, because one process has
// one engine, and can't be two ranks.
//
//	func TestMain(m *testing.M) { localtest.Main(m, map[string]localtest.Program{"ring": ring}) }
//	func TestRing(t *testing.T) { localtest.Run(t, 4, "ring") }
//	func ring(ctx context.Context) error { ... }
package localtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/internal/fork"
)

// Program is what one rank does. The context ends before the harness kills the
// process, so that a rank that hangs can say where. An error is printed, and the
// rank exits with status 1. So it does when the program leaves goroutines behind.
type Program func(ctx context.Context) error

// The environment of a rank: the program's name, and its time.
const (
	envProgram = "LOCALTEST_PROGRAM"
	envTimeout = "LOCALTEST_TIMEOUT"
)

// Main is what TestMain calls: in a process that Run has started it runs the
// program and exits, else it runs the tests.
func Main(m *testing.M, programs map[string]Program) {
	name, ok := os.LookupEnv(envProgram)
	if !ok {
		os.Exit(m.Run())
	}
	if err := runRank(name, programs); err != nil {
		fmt.Fprintf(os.Stderr, "rank %s: %v\n", os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK"), err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runRank(name string, programs map[string]Program) error {
	program, ok := programs[name]
	if !ok {
		return fmt.Errorf("no program %q", name)
	}
	timeout, err := time.ParseDuration(os.Getenv(envTimeout))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := program(ctx); err != nil {
		return err
	}
	return goleak.Find()
}

// Job says how to run a program.
type Job struct {
	Size    int
	Most    int // Largest number of processes at a time; 0: Size.
	Nodes   int // As server.Options has it.
	Program string
	Env     []string      // further variables, NAME=value
	Timeout time.Duration // 0: a minute
	// MayFail accepts ranks that fail: the test looks at Result itself.
	MayFail bool
	// Desert, when it is closed, ends the launcher's connections for good, as its death
	// would; nil: never. The harness stays, and ends the ranks when their time is up.
	Desert <-chan struct{}
}

// Result is what became of a job. Its lists have an element for each rank that a change has
// ordered, too.
type Result struct {
	Output []string // what each rank wrote, by rank
	Exit   []error  // How each rank ended; nil is status 0, or an end that a change excuses.
	// Reports holds what each rank reported (bootstrap.Reporter), by rank and name.
	Reports []map[string][]byte
}

// Run runs the program as n ranks, and fails the test if one of them fails.
func Run(t testing.TB, n int, program string, env ...string) Result {
	t.Helper()
	return RunJob(t, Job{Size: n, Program: program, Env: env})
}

// RunJob runs a job to its end.
func RunJob(t testing.TB, job Job) Result {
	t.Helper()
	if job.Timeout == 0 {
		job.Timeout = time.Minute
	}
	r, err := job.run()
	if err != nil {
		t.Fatal(err)
	}
	if job.MayFail {
		return r
	}
	if err := errors.Join(r.Exit...); err != nil {
		for rank, out := range r.Output {
			if r.Exit[rank] != nil || out != "" {
				t.Logf("rank %d: %v\n%s", rank, r.Exit[rank], out)
			}
		}
		t.Fatalf("%s failed", job.Program)
	}
	return r
}

// How a job that does not end by itself is ended.
const (
	// A rank has this part of the time to say where it hangs.
	programShare = 0.8
	// After the first failure the others are told, and may finish.
	failureGrace = 10 * time.Second
	// After a dump was asked for, before the kill.
	dumpGrace = 500 * time.Millisecond
)

func (job Job) run() (Result, error) {
	h := &harness{job: job, orders: server.NewQueue[server.Order](), procs: map[int]*process{}, exited: make(chan *process)}
	var err error
	h.server, err = server.New(server.Options{Size: job.Size, Most: job.Most, Nodes: job.Nodes, Order: h.orders.Add, OnReport: h.recordReport})
	if err != nil {
		return Result{}, err
	}
	defer h.server.Close()
	if err := h.server.Listen(""); err != nil {
		return Result{}, err
	}
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	h.thread = fork.New()
	defer h.thread.Close()
	for rank := range job.Size {
		if err := h.start(ctx, rank); err != nil {
			kill()
			h.wait(ctx, kill)
			return h.result(), err
		}
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-job.Desert:
			h.server.Close()
		case <-over:
		}
	}()
	h.wait(ctx, kill)
	close(over)
	return h.result(), nil
}

// command is a rank, which is killed with what it has started when ctx ends.
func (job Job) command(ctx context.Context, s *server.Server, rank int, out *bytes.Buffer) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0])
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	for _, v := range server.Inherit(os.Environ()) {
		if !strings.HasPrefix(v, "FERRY_") {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, "FERRY_CONFIG="+os.DevNull, envProgram+"="+job.Program,
		envTimeout+"="+time.Duration(float64(job.Timeout)*programShare).String())
	if _, ok := os.LookupEnv("GORACE"); !ok {
		c.Env = append(c.Env, "GORACE=atexit_sleep_ms=0") // a race build would sleep a second at each exit
	}
	c.Env = append(c.Env, s.Environ(rank)...)
	c.Env = append(c.Env, job.Env...)
	c.Stdout, c.Stderr = out, out
	// What a rank leaves running must not keep Wait waiting for its output.
	c.WaitDelay = time.Second
	return c
}

func exitReason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
