package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/mpi"
)

// envConduct is the conduct of elastic ranks. Without one, they take part in changes. A "deaf" rank never queries,
// and a "stuck" one that has joined does not integrate its change.
const envConduct = "CLI_TEST_CONDUCT"

// elastic integrates the changes that users request, until USR1.
func elastic() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGUSR1)
	go func() {
		<-stop
		os.Exit(0)
	}()
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	conduct, pset := os.Getenv(envConduct), "mpi://WORLD"
	change, isAdded, err := session.ResourceChange(ctx, "mpi://SELF")
	check(err)
	fmt.Println("pid", os.Getpid())
	if conduct == "deaf" || isAdded && conduct == "stuck" {
		select {}
	}
	for {
		if !isAdded {
			change, err = session.ResourceChangeAsync(pset).Wait(ctx)
			check(err)
		}
		isAdded = false
		if change.Type == mpi.ChangeFailed {
			continue
		}
		got, err := session.Integrate(ctx, change.Delta, "")
		if errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrTimeout) || errors.Is(err, mpi.ErrCanceled) {
			continue // Undone.
		}
		check(err)
		if pset = got.Pset; got.Terminate {
			check(session.Close())
			return
		}
	}
}

// asNobody is ferry of another user.
func asNobody() {
	check(syscall.Setuid(65534))
	ferrytest.Ferry()
}

// elasticJob is a job of `ferry run` in a separate runtime directory.
type elasticJob struct {
	*testing.T
	cmd *exec.Cmd
	dir string
	// Of standard output.
	lines  chan string
	errs   bytes.Buffer
	status chan int
}

// startElastic starts 2 ranks, and waits until they run.
func startElastic(t *testing.T, conduct string, args ...string) *elasticJob {
	t.Helper()
	j := &elasticJob{T: t, dir: t.TempDir(), lines: make(chan string, 100), status: make(chan int, 1)}
	j.cmd = j.command("ferry", append(append([]string{"run", "-n", "2", "--max-ranks", "4"}, args...), "elastic")...)
	j.cmd.Env = append(j.cmd.Env, envConduct+"="+conduct)
	j.cmd.Stderr = &j.errs
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			j.lines <- lines.Text()
		}
		_ = j.cmd.Wait()
		j.status <- j.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		j.cmd.Process.Kill()
		j.wait()
	})
	j.ranks(2)
	return j
}

func (j *elasticJob) command(program string, args ...string) *exec.Cmd {
	path, err := exec.LookPath(program)
	if err != nil {
		j.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+j.dir)
	return cmd
}

// ranks waits for the lines of n ranks, and returns their process ids.
func (j *elasticJob) ranks(n int) []int {
	j.Helper()
	pids := make([]int, n)
	for i := range pids {
		select {
		case line := <-j.lines:
			if _, err := fmt.Sscanf(line, "pid %d", &pids[i]); err != nil {
				j.Fatalf("output %q", line)
			}
		case <-time.After(time.Minute):
			j.Fatalf("%d of %d ranks run: %s", i, n, j.errs.String())
		}
	}
	return pids
}

// wait returns the exit status of the job.
func (j *elasticJob) wait() int {
	j.Helper()
	select {
	case s := <-j.status:
		j.status <- s
		return s
	case <-time.After(time.Minute):
		j.Fatal("ferry run does not end")
		return 0
	}
}

func (j *elasticJob) signal(sig syscall.Signal) {
	j.Helper()
	if err := j.cmd.Process.Signal(sig); err != nil {
		j.Fatal(err)
	}
}

// ferry runs a command of a program, and returns its status and output.
func (j *elasticJob) ferry(program string, args ...string) (status int, output string) {
	j.Helper()
	cmd := j.command(program, args...)
	out, _ := cmd.CombinedOutput() // The status is enough.
	return cmd.ProcessState.ExitCode(), string(out)
}

// resize runs `ferry resize` for the job.
func (j *elasticJob) resize(args ...string) (status int, output string) {
	j.Helper()
	return j.ferry("ferry", append([]string{"resize", fmt.Sprint(j.cmd.Process.Pid)}, args...)...)
}

// want fails unless a command has ended with a status, and its output has a text.
func (j *elasticJob) want(wantStatus int, wantText string) func(status int, output string) {
	j.Helper()
	return func(status int, output string) {
		j.Helper()
		if status != wantStatus || !strings.Contains(output, wantText) {
			j.Errorf("status %d, %q, want %d, %q", status, output, wantStatus, wantText)
		}
	}
}

// begin begins a resize, and waits until it is in progress. The result ends it, and returns status and output.
func (j *elasticJob) begin(args ...string) (cmd *exec.Cmd, wait func() (int, string)) {
	j.Helper()
	cmd = j.command("ferry", append([]string{"resize", fmt.Sprint(j.cmd.Process.Pid)}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		j.Fatal(err)
	}
	j.await("the change", func(r *running) bool { return len(r.Changes) > 0 })
	return cmd, func() (int, string) {
		_ = cmd.Wait() // The status is enough.
		return cmd.ProcessState.ExitCode(), out.String()
	}
}

// running is the entry of a job in the output of `ferry ps --json`.
type running struct {
	PID           int
	State, Reason string
	Program       string
	Ranks, Limit  int
	Changes       []struct {
		Type, Pset, State, Requester  string
		Add, Sub, Members, Integrated int
	}
}

// list returns the job's entry, or nil.
func (j *elasticJob) list() *running {
	j.Helper()
	out, err := j.command("ferry", "ps", "--json").Output()
	if err != nil {
		j.Fatal(err)
	}
	var all struct{ Jobs []running }
	if err := json.Unmarshal(out, &all); err != nil {
		j.Fatalf("%v in %s", err, out)
	}
	if i := slices.IndexFunc(all.Jobs, func(r running) bool { return r.PID == j.cmd.Process.Pid }); i >= 0 {
		return &all.Jobs[i]
	}
	return nil
}

// await waits until the job's entry is as wanted.
func (j *elasticJob) await(what string, is func(*running) bool) *running {
	j.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if r := j.list(); r != nil && is(r) {
			return r
		}
		if time.Now().After(deadline) {
			j.Fatalf("%s does not come: %+v", what, j.list())
		}
	}
}

// suspend stops the job by Ctrl-Z, and waits until the ranks are stopped.
func (j *elasticJob) suspend(ranks []int) {
	j.Helper()
	j.signal(syscall.SIGTSTP)
	for _, pid := range append(ranks, j.cmd.Process.Pid) {
		for deadline := time.Now().Add(time.Minute); !isStopped(pid); {
			if time.Now().After(deadline) {
				j.Fatalf("process %d is not stopped", pid)
			}
		}
	}
}

func isStopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(b, []byte(") T "))
}

func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for deadline := time.Now().Add(time.Minute); alive(pid); {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is left", pid)
			}
		}
	}
}

// removesLeftovers runs the next job, when the leftovers of this one are old enough.
func (j *elasticJob) removesLeftovers() {
	j.Helper()
	sockets, err := filepath.Glob(filepath.Join(j.dir, "ferry-*", "bootstrap"))
	if err != nil || len(sockets) != 1 {
		j.Fatalf("left are the sockets %v, %v", sockets, err)
	}
	if r := j.list(); r != nil {
		j.Errorf("listed as %+v after its end", r)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(sockets[0], old, old); err != nil {
		j.Fatal(err)
	}
	j.want(0, "")(j.ferry("ferry", "run", "-n", "2", "ferry", "bench", "latency", "-i", "10", "-x", "0", "-m", "8:8"))
}
