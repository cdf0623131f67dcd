package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/mpi"
)

func TestMain(m *testing.M) {
	ferrytest.Main(m, map[string]func(){"forever": forever, "crash": crash, "blamed": blamed, "hang": hang, "hang-ranks": hangRanks, "everyone": everyone, "chain": chain, "computes": computes, "refused": refused, "refused-later": refusedLater, "elastic": elastic, "ferry-nobody": asNobody})
}

// forever prints a line and waits for a signal. It ends after a time limit.
func forever() {
	fmt.Println("pid", os.Getpid())
	time.Sleep(10 * time.Minute)
}

// crash makes a communicator, lists the segments that are there, and has the
// last rank killed, unless STAY is set; the others stay until they are killed too.
func crash() {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "crash")
	check(err)
	check(mpi.Barrier(ctx, comm))
	if comm.Rank() == 0 {
		files, err := os.ReadDir(os.Getenv(framework.EnvName("btl.shm.dir")))
		check(err)
		fmt.Println("segments:", len(files))
	}
	check(mpi.Barrier(ctx, comm))
	if comm.Rank() == comm.Size()-1 && os.Getenv("STAY") == "" {
		check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	forever()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestCommands(t *testing.T) {
	sources, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	ferrytest.Run(t, func(p *testscript.Params) {
		setup := p.Setup
		p.Setup = func(e *testscript.Env) error { e.Setenv("SOURCES", sources); return setup(e) }
		p.Cmds["fields"] = fields
		// processors: at least two processors; seccomp: a kernel with seccomp.
		p.Condition = func(name string) (bool, error) {
			switch name {
			case "processors":
				return cpu.Available() >= 2, nil
			case "seccomp":
				_, err := os.Stat("/proc/sys/kernel/seccomp")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		}
	})
}

func TestRun_SeveralPrograms_AreOneJob(t *testing.T) {
	ferrytest.Run(t, func(p *testscript.Params) { p.Dir = "testdata/mpmd" })
}

// fields FILE PATH...: FILE is JSON, one value or one per line, and in each of
// them every PATH (a.b.c; arrays are entered at every element) is there.
func fields(ts *testscript.TestScript, neg bool, args []string) {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	values := 0
	for dec.More() {
		var v any
		ts.Check(dec.Decode(&v))
		values++
		for _, p := range args[1:] {
			if err := lookup(v, strings.Split(p, ".")); err != nil {
				ts.Fatalf("%s: %v", p, err)
			}
		}
	}
	if values == 0 || neg {
		ts.Fatalf("no JSON in %s", args[0])
	}
}

func lookup(v any, path []string) error {
	if list, ok := v.([]any); ok {
		for _, e := range list {
			if err := lookup(e, path); err != nil {
				return err
			}
		}
		return nil
	}
	if len(path) == 0 {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is not an object", v)
	}
	next, ok := m[path[0]]
	if !ok {
		return fmt.Errorf("no field %s in %v", path[0], m)
	}
	return lookup(next, path[1:])
}

// Ranks are in separate process groups, which a terminal stops at a read, so that the launcher reads for them.
func TestRun_Terminal_RankReadsIt(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	master, slave := terminal(t)
	cmd := exec.Command(path, "run", "-n", "2", "--timeout", "1m", "head", "-n", "1")
	cmd.Stdin, cmd.Stderr = slave, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if _, err := master.WriteString("typed\n"); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil || string(out) != "typed\n" {
		t.Errorf("output %q, error %v", out, err)
	}
}

func TestTerminal_JobInTheBackground_IsNotStopped(t *testing.T) {
	for name, c := range map[string]struct{ script, typed, want string }{
		"background":       {"set -m; ferry run -n 2 echo done & wait $!; echo $?; head -n 1", "typed\n", "done\ndone\n0\ntyped\n"},
		"foreground again": {"set -m; ferry run -n 1 head -n 1 & sleep 0.3; fg >/dev/null", "typed\n", "typed\n"},
		"longer than poll": {"set -m; ferry run -n 1 sleep 0.3 & wait $!; echo $?; head -n 1", "typed\n", "0\ntyped\n"},
		"timeout(1)":       {"timeout 30 ferry run -n 2 echo done; echo $?", "typed\n", "done\ndone\n0\n"},
	} {
		master, slave := terminal(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "sh", "-c", c.script)
		cmd.Stdin, cmd.Stderr = slave, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if _, err := master.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.Output()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: output %q, error %v", name, out, err)
		}
		cancel()
	}
}

func TestTerminal_StopsBackgroundWriters_RanksWrite(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	master, slave := terminal(t)
	mode, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Lflag |= unix.TOSTOP
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "run", "-n", "2", "sh", "-c", "echo out; echo err >&2")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	var out string
	for strings.Count(out, "\n") < 4 {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		out += string(buf[:n])
	}
	if strings.Count(out, "out") != 2 || strings.Count(out, "err") != 2 {
		t.Errorf("%q", out)
	}
}

// terminal returns both ends of a new pseudo-terminal (pty(7)).
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	master = open("/dev/ptmx")
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return master, open(fmt.Sprintf("/dev/pts/%d", n))
}

// A launcher that is interrupted, or killed outright, must not leave ranks.
func TestRun_LauncherIsKilled_LeavesNoOrphans(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		path, err := exec.LookPath("ferry")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		cmd := exec.Command(path, "run", "-n", "3", "forever")
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pids []int
		for range 3 {
			var pid int
			if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		for _, pid := range pids {
			deadline := time.Now().Add(20 * time.Second)
			for alive(pid) {
				if time.Now().After(deadline) {
					t.Fatalf("%v: rank %d outlives its launcher", sig, pid)
				}
			}
		}
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if sig != syscall.SIGKILL && len(left) > 0 {
			t.Errorf("%v: left behind: %v", sig, left)
		}
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !regexp.MustCompile(`\) [ZX] `).Match(b)
}

// Any signal that ends a command first ends its jobs, which remove their segments.
func TestCommands_Signal_LeavesNoFiles(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	signals := []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
	// The commands would inherit ignored signals (nohup, a shell's background), and do not inherit
	// the handlers of this process.
	received := make(chan os.Signal, 1)
	signal.Notify(received, signals...)
	defer signal.Stop(received)
	for _, command := range []string{"bench latency -i 1000000000", "explain", "matrix --components ob1+shm", "run -n 2 ferry bench latency -i 1000000000"} {
		for _, sig := range signals {
			runtimeDir, segments := t.TempDir(), t.TempDir()
			cmd := exec.Command(path, strings.Fields(command)...)
			cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtimeDir, framework.EnvName("btl.shm.dir")+"="+segments)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { _ = cmd.Wait(); close(ended) }()
			for entries(t, segments) == 0 && !closed(ended) {
				time.Sleep(time.Millisecond)
			}
			if err := cmd.Process.Signal(sig); err != nil && command != "explain" { // which is quick
				t.Errorf("%s has ended before %v: %s", command, sig, out.String())
			}
			<-ended
			// A Go program exits with status 2 on SIGQUIT, and ferry run with that of its ranks.
			if want := 128 + int(sig.(syscall.Signal)); cmd.ProcessState.ExitCode() != want && command != "explain" && (sig != syscall.SIGQUIT || !strings.HasPrefix(command, "run")) {
				t.Errorf("%s, %v: status %d, want %d\n%s", command, sig, cmd.ProcessState.ExitCode(), want, out.String())
			}
			if n := entries(t, runtimeDir) + entries(t, segments); n > 0 || cmd.ProcessState.ExitCode() < 0 {
				t.Errorf("%s, %v: %v, %d files are left\n%s", command, sig, cmd.ProcessState, n, out.String())
			}
		}
	}
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
