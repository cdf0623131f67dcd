// Package pmixtest runs a test as the ranks of a PMIx job. The test binary starts copies of itself
// under a launcher, which is a small one on libpmix's server interface, compiled from
// testdata/server.c, or the machine's mpirun. A missing dependency skips the test with the reason,
// and fails it if REQUIRE_ALL is 1.
//
//	func TestMain(m *testing.M) { pmixtest.Main(m, map[string]pmixtest.Program{"put": put}) }
//	func TestPut(t *testing.T) { pmixtest.Run(t, pmixtest.Server(t, "-n", "2"), "put") }
package pmixtest

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

// Program is the program of one rank. An error is printed, and the rank exits with status 1. The
// test reads its output.
type Program func(ctx context.Context) error

const (
	envProgram = "PMIXTEST_PROGRAM"
	// Directory of the ranks' flags.
	envFlags = "PMIXTEST_FLAGS"
	// limit is the time of a job, also on a busy machine.
	limit = time.Minute
)

// Main is for TestMain. It runs the program in a process that Run has started, and the tests in any
// other, and exits. It calls after in both before a successful end, to check for leaks.
func Main(m *testing.M, programs map[string]Program, after func() error) {
	name, ok := os.LookupEnv(envProgram)
	if !ok {
		status := m.Run()
		Clean()
		if err := after(); err != nil && status == 0 {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
		os.Exit(status)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	err := fmt.Errorf("no program %q", name)
	if p := programs[name]; p != nil {
		err = p(ctx)
	}
	cancel()
	if err == nil {
		err = after()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %s: %s: %v\n", os.Getenv("PMIX_RANK"), name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// AsProgram returns the variable of the environment that makes a copy of the test binary run a
// program, for processes that a program starts.
func AsProgram(name string) string { return envProgram + "=" + name }

// SetFlag sets a flag with a text for the ranks of the job and for the test.
func SetFlag(flag, text string) error {
	file := filepath.Join(os.Getenv(envFlags), flag)
	if err := os.WriteFile(file+".tmp", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// AwaitFlags waits until other ranks have set flags.
func AwaitFlags(ctx context.Context, flags ...string) error {
	for _, flag := range flags {
		if _, err := awaitFlag(ctx, os.Getenv(envFlags), flag); err != nil {
			return err
		}
	}
	return nil
}

func awaitFlag(ctx context.Context, dir, flag string) (string, error) {
	for {
		if text, err := os.ReadFile(filepath.Join(dir, flag)); err == nil {
			return string(text), nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return "", fmt.Errorf("flag %s is not set: %w", flag, context.Cause(ctx))
		}
	}
}

//go:embed testdata/server.c
var source []byte

// scratch is a directory for all tests of a binary, with the compiled server.
var scratch struct {
	sync.Mutex
	dir, server string
}

// Clean removes the files of all tests of this binary. Main calls it.
func Clean() {
	scratch.Lock()
	defer scratch.Unlock()
	if scratch.dir != "" {
		os.RemoveAll(scratch.dir)
	}
	scratch.dir, scratch.server = "", ""
}

// scratchDir makes the directory. Launchers may still write to it after the end of a test, so it is
// removed after all tests.
func scratchDir(t testing.TB) string {
	t.Helper()
	scratch.Lock()
	defer scratch.Unlock()
	if scratch.dir == "" {
		dir, err := os.MkdirTemp("", "pmixtest")
		if err != nil {
			t.Fatal(err)
		}
		scratch.dir = dir
	}
	return scratch.dir
}

// Compile compiles a C program against libpmix's headers and the library.
func Compile(t testing.TB, out string, args ...string) {
	t.Helper()
	needs.Program(t, "gcc", "gcc and libc6-dev")
	include := headers(t)
	args = append([]string{"-Wall", "-I" + include, "-I" + filepath.Join(include, "pmix"), "-o", out}, args...)
	args = append(args, "-L"+filepath.Join(filepath.Dir(include), "lib"), "-lpmix", "-lpthread")
	if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// headers returns the directory of libpmix's headers.
func headers(t testing.TB) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*-linux-gnu/pmix2/include", "/usr/include", "/usr/local/include"} {
		found, _ := filepath.Glob(filepath.Join(pattern, "pmix_server.h"))
		if len(found) > 0 {
			return filepath.Dir(found[0])
		}
	}
	needs.Missing(t, "no headers of libpmix: install libpmix-dev")
	return ""
}

// Server returns the command line of the small launcher, up to its program. testdata/server.c
// describes the arguments.
func Server(t testing.TB, args ...string) []string {
	t.Helper()
	dir := scratchDir(t)
	scratch.Lock()
	defer scratch.Unlock()
	if scratch.server == "" {
		file, server := filepath.Join(dir, "server.c"), filepath.Join(dir, "server")
		if err := os.WriteFile(file, source, 0o600); err != nil {
			t.Fatal(err)
		}
		Compile(t, server, file)
		scratch.server = server
	}
	return append(append([]string{scratch.server}, args...), "--")
}

// Mpirun returns the command line of Open MPI's launcher for n ranks.
func Mpirun(t testing.TB, n int, args ...string) []string {
	t.Helper()
	for _, name := range []string{"mpirun.openmpi", "mpirun"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		about, err := exec.Command(path, "--version").CombinedOutput()
		if err == nil && bytes.Contains(about, []byte("Open MPI")) {
			return append([]string{path, "--oversubscribe", "-n", strconv.Itoa(n)}, args...)
		}
	}
	needs.Missing(t, "no mpirun of Open MPI: install openmpi-bin")
	return nil
}

// Run runs a program as the ranks of a launcher, and returns their output and that of the launcher.
// It fails the test if the launcher fails.
func Run(t testing.TB, launcher []string, program string, env ...string) string {
	t.Helper()
	out, err := RunAny(t, launcher, program, env...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return out
}

// RunAny is Run for jobs that may fail.
func RunAny(t testing.TB, launcher []string, program string, env ...string) (string, error) {
	t.Helper()
	j := Start(t, launcher, program, env...)
	return j.Wait()
}

// A Job is a running job.
type Job struct {
	Process *os.Process // The launcher.
	cmd     *exec.Cmd
	flags   string
	out     *output
	stop    context.CancelFunc
}

// Start starts the job of Run. The launcher and the ranks are killed when the test's time is up.
func Start(t testing.TB, launcher []string, program string, env ...string) *Job {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	flags := t.TempDir()
	dir := scratchDir(t)
	ctx, stop := context.WithTimeout(context.Background(), limit)
	t.Cleanup(stop)
	cmd := exec.CommandContext(ctx, launcher[0], append(launcher[1:], self)...)
	cmd.Env = append(outside(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"TMPDIR="+dir, envProgram+"="+program, envFlags+"="+flags)
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out := new(output)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &Job{Process: cmd.Process, cmd: cmd, flags: flags, out: out, stop: stop}
}

// Wait waits for the launcher's end.
func (j *Job) Wait() (string, error) {
	err := j.cmd.Wait()
	j.stop()
	return j.out.String(), err
}

// Await waits until a rank has set the flag, and returns its text.
func (j *Job) Await(t testing.TB, flag string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	text, err := awaitFlag(ctx, j.flags, flag)
	if err != nil {
		t.Fatalf("%v\n%s", err, j.out)
	}
	return text
}

// outside returns the environment without the variables of another launcher.
func outside() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PMIX_") && !strings.HasPrefix(e, "OMPI_") && !strings.HasPrefix(e, "SLURM_") {
			env = append(env, e)
		}
	}
	return env
}

// output is a buffer for concurrent writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
