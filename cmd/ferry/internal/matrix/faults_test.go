package matrix_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
)

// The tests of this package run `ferry matrix` as users do, with a ferry that has
// broken transports (cmd/ferry/internal/settings/faults.go).

// built is that ferry, made when the first test asks for it.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ferry-faults-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "ferry")
	if text, err := exec.Command("go", "build", "-tags", "ferry_faults", "-o", path, "github.com/ferrympi/ferry/cmd/ferry").CombinedOutput(); err != nil {
		return path, fmt.Errorf("%w: %s", err, text)
	}
	return path, nil
})

var wanted atomic.Bool // A test needs it.

func TestMain(m *testing.M) {
	scratch := ""
	if testprov.Other() { // for the jobs that use it
		file, err := os.CreateTemp("", "ferry-*.yaml")
		if err == nil {
			_, err = fmt.Fprintf(file, "params:\n  mtl.ofi.library: %s\n", testprov.System())
			err = errors.Join(err, file.Close(), os.Setenv("FERRY_CONFIG", file.Name()))
			scratch = file.Name()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	status := m.Run()
	if scratch != "" {
		os.Remove(scratch)
	}
	if wanted.Load() {
		path, _ := built()
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

// tool is its path.
func tool(t *testing.T) string {
	t.Helper()
	wanted.Store(true)
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A command is a running ferry with a separate directory for segments. At the end of the
// test, none of its processes and segments may be left.
type command struct {
	*exec.Cmd
	t        *testing.T
	json     string
	segments string
	stdout   io.Closer
	lines    *bufio.Scanner // of standard output
	// Output that wait has read.
	out    bytes.Buffer
	stderr bytes.Buffer
}

// start starts ferry with the given arguments, and with a mark in the environment by
// which all its processes are known.
func start(t *testing.T, env []string, args ...string) *command {
	t.Helper()
	c := &command{t: t, Cmd: exec.Command(tool(t), args...), json: filepath.Join(t.TempDir(), "report.json")}
	var err error
	if c.segments, err = os.MkdirTemp("/dev/shm", "ferry-faults-"); err != nil {
		t.Fatal(err)
	}
	for i, a := range c.Args {
		c.Args[i] = strings.ReplaceAll(a, "$JSON", c.json)
	}
	c.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
	for _, btl := range []string{"SHM", "DROP", "DUPLICATE", "REORDER", "CORRUPT", "HANG", "HANG_OPEN", "CRASH"} {
		c.Env = append(c.Env, "FERRY_BTL_"+btl+"_DIR="+c.segments)
	}
	c.Env = append(c.Env, env...)
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout, c.lines = stdout, bufio.NewScanner(stdout)
	c.Stderr = &c.stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it has ended, unless the test has failed
		_ = c.Cmd.Wait()
		c.leftovers()
	})
	return c
}

// leftovers reports and removes remaining processes and segments.
func (c *command) leftovers() {
	for try := 0; ; try++ {
		left := c.processes("")
		if len(left) == 0 {
			break
		}
		if try == 1000 { // A busy system needs some seconds to end killed processes.
			for pid, line := range left {
				c.t.Errorf("process %d is left: %s", pid, line)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if files, _ := os.ReadDir(c.segments); len(files) > 0 {
		c.t.Errorf("segments are left: %v", files)
	}
	os.RemoveAll(c.segments)
}

// processes returns the command lines of the command's processes with the variable in their environment. Their
// directory for segments identifies them.
func (c *command) processes(variable string) map[int]string {
	found := map[int]string{}
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range entries {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		env := strings.Split(string(text), "\x00")
		if !slices.Contains(env, "FERRY_BTL_SHM_DIR="+c.segments) || variable != "" && !slices.Contains(env, variable) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && pid != os.Getpid() {
			found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

// until reads standard output up to the line that contains text.
func (c *command) until(text string) {
	c.t.Helper()
	for c.lines.Scan() {
		fmt.Fprintln(&c.out, c.lines.Text())
		if strings.Contains(c.lines.Text(), text) {
			return
		}
	}
	c.t.Fatalf("%q was not written: %s%s", text, &c.out, &c.stderr)
}

// wait waits for the end, checks the exit status, and returns the report, which is
// nil if there is none.
func (c *command) wait(status int) *report.Report {
	c.t.Helper()
	for c.lines.Scan() {
		fmt.Fprintln(&c.out, c.lines.Text())
	}
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || c.ProcessState.ExitCode() != status {
		c.t.Errorf("exit status %d, want %d (%v): %s%s", c.ProcessState.ExitCode(), status, err, &c.out, &c.stderr)
	}
	f, err := os.Open(c.json)
	if err != nil {
		return nil
	}
	defer f.Close()
	r, err := report.ReadJSON(f)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Status != report.Pass && row.Reason == "" {
			c.t.Errorf("no reason: %+v", row)
		}
	}
	return r
}

// row returns the row of a case.
func row(t *testing.T, r *report.Report, stack, name string) report.Row {
	t.Helper()
	if r == nil {
		t.Fatal("there is no report")
	}
	for _, row := range r.Rows {
		if row.Stack == stack && row.Case == name {
			return row
		}
	}
	t.Fatalf("no row %s %s in %+v", stack, name, r.Rows)
	return report.Row{}
}

// segv matches the message of Go's runtime, or of a library with signal handlers.
const segv = "SIGSEGV|(killed by|terminated with) signal 11"

// expect checks the status of a row, and matches its reason with says.
func expect(t *testing.T, r *report.Report, stack, name string, status report.Status, says string) {
	t.Helper()
	if got := row(t, r, stack, name); got.Status != status || !regexp.MustCompile(says).MatchString(got.Reason) {
		t.Errorf("%s %s: %s: %s; want %s: %s", stack, name, got.Status, got.Reason, status, says)
	}
}

// passes checks that every row of a stack passed or was skipped, and that at least the given number
// passed.
func passes(t *testing.T, r *report.Report, stack string, least int) {
	t.Helper()
	n := 0
	for _, row := range r.Rows {
		switch {
		case row.Stack != stack || row.Status == report.Skip:
		case row.Status == report.Pass:
			n++
		default:
			t.Errorf("%s %s: %s: %s", stack, row.Case, row.Status, row.Reason)
		}
	}
	if n < least {
		t.Errorf("%s: %d cases passed, want %d", stack, n, least)
	}
}

func needLibfabric(t *testing.T) {
	t.Helper()
	testprov.Need(t)
}
