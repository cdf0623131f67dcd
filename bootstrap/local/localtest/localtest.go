// Package localtest runs a test as several processes. The test binary starts copies of itself as
// the ranks of a job, under a bootstrap server inside the test. Tests of everything above the
// bootstrap use it, because one process has one engine and cannot be two ranks.
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

// Program is the program of one rank. The context ends before the harness kills the process, so
// that a rank that hangs can report its position. A rank with an error prints it and exits with
// status 1, and so does a rank that leaves goroutines behind.
type Program func(ctx context.Context) error

// Environment of a rank.
const (
	envProgram = "LOCALTEST_PROGRAM"
	envTimeout = "LOCALTEST_TIMEOUT"
)

// Main is for TestMain. It runs the program in a process that Run has started, and the tests in any
// other, and exits.
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

// Job has the arguments of RunJob.
type Job struct {
	Size int
	// Largest number of processes at a time. 0 means Size.
	MaxProcs int
	// As server.Options.Nodes.
	Nodes   int
	Program string
	// Additional variables, NAME=value.
	Env []string
	// 0 means a minute.
	Timeout time.Duration
	// MayFail accepts ranks that fail. The test checks Result itself.
	MayFail bool
	// LoseServer, once closed, ends the launcher's connections for good, as the death of the launcher
	// would. The harness continues, and ends the ranks when their time is up. nil has no effect.
	LoseServer <-chan struct{}
}

// Result has the results of a job, with an element for each rank, including those that a change has
// ordered.
type Result struct {
	// Output by rank.
	Output []string
	// End of each rank. nil is status 0, or an end that a change excuses.
	Exit []error
	// Reports (bootstrap.Reporter) by rank and name.
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

// Times of a job that does not end by itself.
const (
	// Share of the timeout after which a rank reports its position.
	programShare = 0.8
	// Time from the first failure to the dump, in which the others may finish.
	failureGrace = 10 * time.Second
	// Time from the dump to the kill.
	dumpGrace = 500 * time.Millisecond
)

func (job Job) run() (Result, error) {
	h := &harness{job: job, orders: server.NewQueue[server.Order](), procs: map[int]*process{}, exited: make(chan *process)}
	var err error
	h.server, err = server.New(server.Options{Size: job.Size, MaxProcs: job.MaxProcs, Nodes: job.Nodes, Order: h.orders.Add, OnReport: h.recordReport})
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
	done := make(chan struct{})
	go func() {
		select {
		case <-job.LoseServer:
			h.server.Close()
		case <-done:
		}
	}()
	h.wait(ctx, kill)
	close(done)
	return h.result(), nil
}

// command returns the command of a rank. At the end of ctx it kills the rank with its children.
func (job Job) command(ctx context.Context, s *server.Server, rank int, out *bytes.Buffer) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0])
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	for _, v := range server.InheritedEnviron(os.Environ()) {
		if !strings.HasPrefix(v, "FERRY_") {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, "FERRY_CONFIG="+os.DevNull, envProgram+"="+job.Program,
		envTimeout+"="+time.Duration(float64(job.Timeout)*programShare).String())
	if _, ok := os.LookupEnv("GORACE"); !ok {
		c.Env = append(c.Env, "GORACE=atexit_sleep_ms=0") // A race build would sleep for a second at each exit.
	}
	c.Env = append(c.Env, s.Environ(rank)...)
	c.Env = append(c.Env, job.Env...)
	c.Stdout, c.Stderr = out, out
	// Children of a rank must not delay Wait.
	c.WaitDelay = time.Second
	return c
}

func exitReason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
