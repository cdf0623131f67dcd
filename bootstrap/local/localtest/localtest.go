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
	"sync"
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
	if err := rank(name, programs); err != nil {
		fmt.Fprintf(os.Stderr, "rank %s: %v\n", os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK"), err)
		os.Exit(1)
	}
	os.Exit(0)
}

func rank(name string, programs map[string]Program) error {
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
	Program string
	Env     []string      // further variables, NAME=value
	Timeout time.Duration // 0: a minute
	// MayFail accepts ranks that fail: the test looks at Result itself.
	MayFail bool
	// Desert, when it is closed, ends the launcher's connections for good, as its death
	// would; nil: never. The harness stays, and ends the ranks when their time is up.
	Desert <-chan struct{}
}

// Result is what became of a job.
type Result struct {
	Output []string // what each rank wrote, by rank
	Exit   []error  // how each rank ended; nil is status 0
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
	afterFailure = 10 * time.Second
	// After a dump was asked for, before the kill.
	afterDump = 500 * time.Millisecond
)

func (job Job) run() (Result, error) {
	var mu sync.Mutex
	r := Result{Output: make([]string, job.Size), Exit: make([]error, job.Size), Reports: make([]map[string][]byte, job.Size)}
	s, err := server.New(server.Options{Size: job.Size, OnReport: func(rank int, name string, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		if r.Reports[rank] == nil {
			r.Reports[rank] = map[string][]byte{}
		}
		r.Reports[rank][name] = body
	}})
	if err != nil {
		return r, err
	}
	defer s.Close()
	if err := s.Listen(""); err != nil {
		return r, err
	}

	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	thread := fork.New()
	defer thread.Close()
	outputs := make([]bytes.Buffer, job.Size)
	ended := make(chan error, job.Size)
	for i := range outputs {
		c := job.command(ctx, s, i, &outputs[i])
		if err := thread.Start(c); err != nil {
			return r, err
		}
		go func() {
			err := c.Wait()
			r.Exit[i] = err
			s.ProcExited(i, reason(err))
			ended <- err
		}()
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-job.Desert:
			s.Close()
		case <-over:
		}
	}()
	job.wait(s, ended, kill)
	close(over)
	for i := range outputs {
		r.Output[i] = outputs[i].String()
	}
	return r, nil
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

// wait returns when all ranks have ended, by themselves or by force.
func (job Job) wait(s *server.Server, ended <-chan error, kill func()) {
	limit := time.NewTimer(job.Timeout)
	defer limit.Stop()
	dumped := false
	for left := job.Size; left > 0; {
		select {
		case err := <-ended:
			left--
			if err != nil && !job.MayFail && !dumped {
				limit.Reset(min(afterFailure, job.Timeout))
			}
		case <-limit.C:
			if dumped {
				kill()
				continue
			}
			dumped = true
			s.Dump()
			limit.Reset(afterDump)
		}
	}
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
