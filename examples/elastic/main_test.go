package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/internal/needs"
)

func TestMain(m *testing.M) { ferrytest.Main(m, map[string]func(){"elastic": main}) }

func TestScripts(t *testing.T) { ferrytest.Run(t) }

// A job is one run of the example under ferry run.
type job struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	errors bytes.Buffer
	dir    string // Its runtime directory, which also marks its processes.
}

func start(t *testing.T, args ...string) *job {
	t.Helper()
	j := &job{cmd: exec.Command("ferry", append([]string{"run", "--timeout", "2m"}, args...)...), dir: t.TempDir()}
	j.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+j.dir, "FERRY_CONFIG="+os.DevNull)
	j.cmd.Stderr = &j.errors
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.out = bufio.NewReader(out)
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return j
}

// line returns the next line of the output.
func (j *job) line(t *testing.T) string {
	t.Helper()
	line, err := j.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q, %v\n%s", err, line, j.cmd.Wait(), j.errors.String())
	}
	return strings.TrimSpace(line)
}

// succeeds waits for the end of the job, and returns the remaining output.
func (j *job) succeeds(t *testing.T) string {
	t.Helper()
	rest, readErr := io.ReadAll(j.out)
	if err := j.cmd.Wait(); err != nil || readErr != nil {
		t.Fatalf("%v, %v\n%s%s", err, readErr, rest, j.errors.String())
	}
	lines := strings.Split(strings.TrimSpace(string(rest)), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "ok: ") {
		t.Errorf("the last line is %q\n%s", last, j.errors.String())
	}
	if left, err := os.ReadDir(j.dir); err != nil || len(left) > 0 {
		t.Errorf("the runtime directory holds %v, %v", left, err)
	}
	return string(rest)
}

// kill kills a rank of the job. It reports false if the rank does not run.
func (j *job) kill(rank int) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		environ, _ := os.ReadFile(path) // The process may have ended.
		environ = append([]byte{0}, environ...)
		if bytes.Contains(environ, fmt.Appendf(nil, "\x00FERRY_BOOTSTRAP_LOCAL_RANK=%d\x00", rank)) && bytes.Contains(environ, []byte(j.dir)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	return false
}

func TestElastic_MemberDies_IsReplaced(t *testing.T) {
	for _, rank := range []int{0, 2} {
		for _, flag := range []string{"-async=false", "-async"} {
			t.Run(fmt.Sprint(rank, flag), func(t *testing.T) {
				longer(t, func(t *testing.T, d string) bool {
					j := start(t, "-n", "3", "--on-failure", "continue", "elastic", flag, "-for", d)
					if line := j.line(t); line != "3 processes after 0 rounds" {
						t.Fatalf("%q", line)
					}
					isKilled := j.kill(rank)
					out := j.succeeds(t)
					return isKilled && strings.Contains(out, "3 processes after")
				})
			})
		}
	}
}

// longer calls f with increasing times for a job, until f reports that the time was enough.
func longer(t *testing.T, f func(t *testing.T, d string) bool) {
	t.Helper()
	const longest = time.Minute
	for d := 2 * time.Second; !f(t, d.String()); d *= 4 {
		if d > longest {
			t.Fatalf("not done within %v", d)
		}
	}
}

// resize runs ferry resize, and reports whether it succeeds.
func (j *job) resize(args ...string) (string, bool) {
	out, err := j.command(append([]string{"resize", strconv.Itoa(j.cmd.Process.Pid)}, args...)...).CombinedOutput()
	return string(out), err == nil
}

// command returns a command of ferry that finds the job.
func (j *job) command(args ...string) *exec.Cmd {
	cmd := exec.Command("ferry", args...)
	cmd.Env = j.cmd.Env
	return cmd
}

func TestElastic_UserResizes_TakesTheChanges(t *testing.T) {
	for _, flag := range []string{"-async=false", "-async"} {
		longer(t, func(t *testing.T, d string) bool {
			j := start(t, "-n", "2", "--max-ranks", "4", "elastic", flag, "-for", d)
			j.line(t)
			isDone := true
			for _, change := range []string{"--add=2", "--sub=3", "--replace=1"} { // The last one replaces all processes.
				if out, ok := j.resize(change); !ok {
					t.Logf("resize %s: %s", change, out)
					isDone = false
				}
			}
			out := j.succeeds(t)
			return isDone && strings.Contains(out, "4 processes after") && strings.Count(out, "1 processes after") == 2 &&
				strings.Contains(out, "3 changes, 1 processes at the end")
		})
	}
}

// TestElastic_UserWithdraws_Continues adds a process that never integrates, and interrupts the
// request when the members wait for it.
func TestElastic_UserWithdraws_Continues(t *testing.T) {
	longer(t, func(t *testing.T, d string) bool {
		j := start(t, "-n", "2", "--max-ranks", "3", "sh", "-c",
			`test "$FERRY_BOOTSTRAP_LOCAL_RANK" -lt 2 && exec elastic -for `+d+`; exec sleep 60`)
		j.line(t)
		request := j.command("resize", strconv.Itoa(j.cmd.Process.Pid), "--add=1")
		if err := request.Start(); err != nil {
			t.Fatal(err)
		}
		areWaiting := false
		for isRunning := true; isRunning && !areWaiting; {
			out, _ := j.command("ps").Output()
			areWaiting = bytes.Contains(out, []byte("2 of 3 integrated"))
			isRunning = bytes.Contains(out, []byte("elastic"))
		}
		request.Process.Signal(syscall.SIGINT)
		request.Wait()
		return strings.Contains(j.succeeds(t), " 0 changes, 2 processes at the end") && areWaiting
	})
}

// TestElastic_OverCM_GrowsAndShrinks needs the library of a network.
func TestElastic_OverCM_GrowsAndShrinks(t *testing.T) {
	info, err := exec.Command("ferry", "info").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^mtl \w+ +usable`).Match(info) {
		needs.Missing(t, "no MTL is usable: install libfabric1, and build with cgo")
	}
	for _, flag := range []string{"-async=false", "-async"} {
		j := start(t, "-n", "1", "--max-ranks", "3", "--set", "pml=cm", "elastic", "-to", "3", "-rounds", "4", flag)
		if out := j.succeeds(t); !strings.Contains(out, "4 changes, 1 processes") {
			t.Errorf("%s: %s", flag, out)
		}
	}
}
