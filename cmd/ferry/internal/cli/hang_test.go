package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// hang never returns: ranks 0 and 1 wait for each other, 2 for 0 in a collective, and 3 outside of the library.
func hang() {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.hang")
	check(err)
	for range 2 { // from the second one on there may be shared memory
		check(mpi.Barrier(ctx, comm))
	}
	b := make([]byte, 1)
	switch comm.Rank() {
	case 0:
		_, err = comm.Recv(ctx, b, 1, 7)
	case 1:
		var r mpi.Request
		r, err = comm.Irecv(b, 0, mpi.AnyTag)
		check(err)
		_, err = r.Wait(ctx)
	case 2:
		err = mpi.Barrier(ctx, comm)
	}
	check(err)
	forever()
}

// hangRanks never returns in two processes with two goroutine ranks each. Rank 3 computes, and the others wait for it.
func hangRanks() {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.hang")
	check(err)
	threads, err := mpi.NewThreadComm(ctx, comm, 2)
	check(err)
	check(threads.Run(ctx, func(ctx context.Context, c *mpi.Comm) error {
		c.SetName("halo")
		if c.Rank() == 3 {
			forever()
		}
		_, err := c.Recv(ctx, nil, 3, 7)
		return err
	}))
}

// Ctrl-\ makes the Go runtime of a rank print its goroutines, and not those of the launcher.
func TestHang_SIGQUIT_GoesToRanks(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	master, slave := terminal(t)
	cmd := exec.Command(path, "run", "-n", "2", "--timeout", "1m", "forever")
	cmd.Stdin = slave
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var pid int
		if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := master.WriteString("\x1c"); err != nil { // Ctrl-\, as a terminal has it at first
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if text := errs.String(); cmd.ProcessState.ExitCode() != 2 || strings.Count(text, "SIGQUIT: quit") != 2 ||
		strings.Count(text, "cli_test.forever") < 2 || strings.Contains(text, "launch.") {
		t.Errorf("%v\n%s", cmd.ProcessState, text)
	}
}

// SIGUSR2 requests the report, which a stopped rank cannot answer.
func TestHang_SIGUSR2_ReportsAndContinues(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "run", "-n", "2", "--timeout", "1m", "forever")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	lines := &lineWriter{found: make(chan string, 64)}
	cmd.Stderr = lines
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for range 2 {
		if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
			t.Fatal(err)
		}
	}
	check(syscall.Kill(pid, syscall.SIGSTOP))
	for !strings.Contains(state(pid), "T") {
		time.Sleep(time.Millisecond)
	}
	check(cmd.Process.Signal(syscall.SIGUSR2))
	var got []string
	for range 2 {
		select {
		case line := <-lines.found:
			got = append(got, line)
		case <-time.After(30 * time.Second):
			t.Fatalf("no account; so far: %q", got)
		}
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, "is stopped (SIGCONT to process "+fmt.Sprint(pid)) || !strings.Contains(all, "has no session open") {
		t.Errorf("%q", got)
	}
	check(syscall.Kill(pid, syscall.SIGCONT))
	check(cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
}

// Ctrl-Z stops the ranks with their launcher, and SIGCONT, which a shell's fg sends, continues them.
func TestRun_CtrlZ_StopsRanks(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	master, slave := terminal(t)
	const limit = 2 * time.Second
	cmd := exec.Command(path, "run", "-n", "2", "--timeout", limit.String(), "forever")
	cmd.Stdin, cmd.Stderr = slave, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := []int{cmd.Process.Pid}
	for range 2 {
		var pid int
		if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	stopped := func(want bool) {
		t.Helper()
		for _, pid := range all {
			for deadline := time.Now().Add(20 * time.Second); (state(pid) == "T") != want; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("process %d of %v is %s", pid, all, state(pid))
				}
			}
		}
	}
	if _, err := master.WriteString("\x1a"); err != nil { // Ctrl-Z
		t.Fatal(err)
	}
	stopped(true)
	time.Sleep(limit) // does not count
	began := time.Now()
	check(cmd.Process.Signal(syscall.SIGCONT))
	stopped(false)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 124 {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took < limit/4 {
		t.Errorf("the time was up after %v more", took)
	}
}

// lineWriter sends on the lines of ferry run.
type lineWriter struct{ found chan string }

func (w *lineWriter) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		select {
		case w.found <- strings.TrimSpace(line):
		default:
		}
	}
	return len(b), nil
}

// state is the state of a process, as /proc has it.
func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ")
	if err != nil || after == "" {
		return "gone"
	}
	return after[:1]
}
