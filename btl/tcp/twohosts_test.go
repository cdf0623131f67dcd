package tcp_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/test/nettest"
)

// Tests between two hosts (test/nettest), of ranks that `ferry run` starts:
//
//	go test ./btl/tcp -v -run TwoHosts                         short
//	go test ./btl/tcp -v -run TwoHosts -full -timeout 1h       as large as they are meant to be
//
// They need root, and are skipped without.

// rankArg is the first argument of this binary as a rank.
const rankArg = "tcp-rank"

// command is the path of ferry, which the first test builds. An import would add the requirements of the
// commands to every dependent module.
var command struct {
	once sync.Once
	path string
	err  error
}

// build returns where ferry is.
func build(t testing.TB) string {
	t.Helper()
	command.once.Do(func() {
		dir, err := os.MkdirTemp("", "ferry-command-")
		if err != nil {
			command.err = err
			return
		}
		command.path = filepath.Join(dir, "ferry")
		if out, err := exec.Command("go", "build", "-o", command.path, "../../cmd/ferry").CombinedOutput(); err != nil {
			command.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if command.err != nil {
		t.Fatal(command.err)
	}
	return command.path
}

// size returns the full or the quick value of a test.
func size[T any](fullSize, small T) T {
	if *full {
		return fullSize
	}
	return small
}

// whole prepares a test of a whole job. Tests without a measurement run in parallel, since they mostly wait.
func whole(t *testing.T) {
	t.Helper()
	if underRace && !*full {
		t.Skip("the race detector is on: -full")
	}
	if !*full {
		t.Parallel()
	}
}

// job is a `ferry run` that runs.
type job struct {
	t    testing.TB
	cmd  *exec.Cmd
	stop context.CancelFunc
	// Output, until the job ends.
	lines chan string
	said  strings.Builder
	over  bool
}

// jobTimeout bounds a job. A job that hangs prints its state then.
const jobTimeout = 5 * time.Minute

// start runs a program as two ranks, one on each host, or both here without hosts. The test must read the
// output by until and end.
func start(t testing.TB, h *nettest.Hosts, flags []string, program ...string) *job {
	t.Helper()
	return startLine(t, slices.Concat([]string{"-n", "2"}, nodes(h), flags, there(h, program)))
}

// nodes returns the flag of a job on the hosts.
func nodes(h *nettest.Hosts) []string {
	if h == nil {
		return nil
	}
	return []string{nettest.Nodes}
}

// there is the command line of a program on the hosts.
func there(h *nettest.Hosts, program []string) []string {
	if h == nil {
		return program
	}
	return h.Command(program[0], program[1:]...)
}

// startLine is start with a whole command line.
func startLine(t testing.TB, line []string) *job {
	t.Helper()
	dir, err := os.MkdirTemp("", "ferry-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{t: t, stop: cancel, lines: make(chan string, 1000)}
	j.cmd = exec.CommandContext(ctx, build(t), append([]string{"run", "--timeout", jobTimeout.String()}, line...)...)
	j.cmd.Env = append(os.Environ(), "FERRY_CONFIG="+os.DevNull, "XDG_RUNTIME_DIR="+dir, "COLUMNS=10000")
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.cmd.Stderr = j.cmd.Stdout
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !j.over {
			cancel()
			_, _ = j.end() // killed
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	go func() {
		defer close(j.lines)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			j.lines <- in.Text()
		}
	}()
	return j
}

// ferry is the program of ranks that are commands of ferry.
func ferry(t testing.TB, args ...string) []string { return append([]string{build(t)}, args...) }

// rank is the program of ranks that are functions of this package.
func rank(name string, args ...string) []string {
	return append([]string{os.Args[0], rankArg, name}, args...)
}

// until waits for n lines of output with a prefix, and returns the rest of each.
func (j *job) until(n int, prefix string) (rests []string) {
	j.t.Helper()
	for len(rests) < n {
		line, ok := j.next()
		if !ok {
			j.over = true
			j.t.Fatalf("%d lines of %d begin with %q: %v\n%s", len(rests), n, prefix, j.cmd.Wait(), j.said.String())
		}
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			rests = append(rests, rest)
		}
	}
	return rests
}

func (j *job) next() (line string, ok bool) {
	if line, ok = <-j.lines; ok {
		fmt.Fprintln(&j.said, line)
	}
	return line, ok
}

// signal ends the programs of the ranks.
func (j *job) signal() {
	j.t.Helper()
	if err := j.cmd.Process.Signal(unix.SIGUSR1); err != nil {
		j.t.Error(err)
	}
}

// end waits for the end of the job, and returns its output.
func (j *job) end() (string, error) {
	for ok := true; ok; {
		_, ok = j.next()
	}
	j.over = true
	err := j.cmd.Wait()
	j.stop()
	return j.said.String(), err
}

// well waits for the end of a job that is to go well.
func (j *job) well() string {
	j.t.Helper()
	out, err := j.end()
	if err != nil {
		j.t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// now is the monotonic clock, which all processes of the machine share.
func now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}
