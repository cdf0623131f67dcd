package ferrytest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A Job is one run of a program under ferry run, which users and deaths change.
type Job struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	errors bytes.Buffer
	// Its runtime directory, which also marks its processes.
	dir string
}

// Start starts ferry run with the arguments, in a private runtime directory. The caller calls Wait or Succeeds.
func Start(t *testing.T, args ...string) *Job {
	t.Helper()
	j := &Job{cmd: exec.Command("ferry", append([]string{"run", "--timeout", "2m"}, args...)...), dir: t.TempDir()}
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

// Line returns the next line of the output.
func (j *Job) Line(t *testing.T) string {
	t.Helper()
	line, err := j.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q, %v\n%s", err, line, j.cmd.Wait(), j.errors.String())
	}
	return strings.TrimSpace(line)
}

// Wait waits for the end of the job, and returns the remaining output. The error has that of the job.
func (j *Job) Wait() (output string, err error) {
	rest, err := io.ReadAll(j.out)
	if err = errors.Join(j.cmd.Wait(), err); err != nil {
		err = fmt.Errorf("%w\n%s%s", err, rest, j.errors.String())
	}
	return string(rest), err
}

// Succeeds waits for the end of the job with status 0, a last line that begins with ok, and an empty runtime directory. It
// returns the remaining output.
func (j *Job) Succeeds(t *testing.T) string {
	t.Helper()
	rest, err := j.Wait()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(rest), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "ok: ") {
		t.Errorf("the last line is %q\n%s", last, j.errors.String())
	}
	if left, err := os.ReadDir(j.dir); err != nil || len(left) > 0 {
		t.Errorf("the runtime directory holds %v, %v", left, err)
	}
	return rest
}

// Kill kills a rank of the job. It reports false if the rank does not run.
func (j *Job) Kill(rank int) bool {
	return KillProcess(fmt.Sprint("FERRY_BOOTSTRAP_LOCAL_RANK=", rank), "XDG_RUNTIME_DIR="+j.dir)
}

// KillProcess kills a process whose environment has all the variables, such as NAME=VALUE. It reports false if there is none.
func KillProcess(variables ...string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		text, _ := os.ReadFile(path) // The process may have ended.
		environ := strings.Split(string(text), "\x00")
		if slices.ContainsFunc(variables, func(v string) bool { return !slices.Contains(environ, v) }) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		return syscall.Kill(pid, syscall.SIGKILL) == nil
	}
	return false
}

// Pid returns the process id of ferry run, the argument of ferry resize.
func (j *Job) Pid() string { return strconv.Itoa(j.cmd.Process.Pid) }

// Resize runs ferry resize, and reports whether it succeeds.
func (j *Job) Resize(args ...string) (output string, isDone bool) {
	out, err := j.Command(append([]string{"resize", j.Pid()}, args...)...).CombinedOutput()
	return string(out), err == nil
}

// Command returns a command of ferry that finds the job.
func (j *Job) Command(args ...string) *exec.Cmd {
	cmd := exec.Command("ferry", args...)
	cmd.Env = j.cmd.Env
	return cmd
}
