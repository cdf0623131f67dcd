package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/internal/libfabric"
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

// kill kills a rank of the job. It reports false if there is none.
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
				for d := 2 * time.Second; ; d *= 4 { // The job may end before the replacement is complete.
					j := start(t, "-n", "3", "--on-failure", "continue", "elastic", flag, "-for", d.String())
					if line := j.line(t); line != "3 processes after 0 rounds" {
						t.Fatalf("%q", line)
					}
					isKilled := j.kill(rank)
					switch out := j.succeeds(t); {
					case strings.Contains(out, "3 processes after"):
						return
					case isKilled && d > 30*time.Second:
						t.Fatalf("rank %d is not replaced\n%s%s", rank, out, j.errors.String())
					}
				}
			})
		}
	}
}

// TestElastic_OverCM_GrowsAndShrinks needs the library of a network.
func TestElastic_OverCM_GrowsAndShrinks(t *testing.T) {
	if _, err := libfabric.Load("libfabric.so.1"); err != nil {
		needs.Missing(t, "%v: install libfabric1, and build with cgo", err)
	}
	for _, flag := range []string{"-async=false", "-async"} {
		j := start(t, "-n", "1", "--max-ranks", "3", "--set", "pml=cm", "elastic", "-to", "3", "-rounds", "4", flag)
		if out := j.succeeds(t); !strings.Contains(out, "4 changes, 1 processes") {
			t.Errorf("%s: %s", flag, out)
		}
	}
}
