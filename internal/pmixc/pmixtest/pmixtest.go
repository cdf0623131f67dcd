// Package pmixtest runs a test as the ranks of a PMIx job: the test binary starts copies
// of itself under a launcher, either a small one on libpmix's server interface, which is
// compiled from testdata/server.c, or the machine's own mpirun. What the machine lacks is a
// skip that says so, and a failure where REQUIRE_ALL is 1.
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

// Program is what one rank does. An error is printed, and the rank exits with status 1.
// It prints what the test reads.
type Program func(ctx context.Context) error

const (
	envProgram = "PMIXTEST_PROGRAM"
	envFlags   = "PMIXTEST_FLAGS" // where the ranks leave word for one another
	// limit is what a job may take, on a machine that does other things too.
	limit = time.Minute
)

// Main is what TestMain calls: in a process that Run has started it runs the
// program and exits, else it runs the tests. after is called in both before the end of a
// success: it looks for what was left behind.
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

// Set tells the ranks of the job, and the test, that this one has come to a point. The
// text is for who awaits it.
func SetFlag(flag, text string) error {
	file := filepath.Join(os.Getenv(envFlags), flag)
	if err := os.WriteFile(file+".tmp", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// Await waits for other ranks to have come to points.
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
			return "", fmt.Errorf("nobody has set %s: %w", flag, context.Cause(ctx))
		}
	}
}

//go:embed testdata/server.c
var source []byte

// scratch is a folder for all tests of a binary, and the server in it, compiled once.
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

// scratchDir makes the folder. Launchers have their files in it too, some of which are
// still written when a test is over: so it is removed at the end of all.
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

// headers is the folder of libpmix's headers.
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

// Server returns the command line of the small launcher, up to the program that it is to
// start. testdata/server.c says which arguments it takes.
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

// Run runs a program as the ranks that the launcher starts, and returns what they and
// the launcher have printed. It fails the test if the launcher fails.
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

// A Job is one that was started.
type Job struct {
	Process *os.Process // the launcher
	cmd     *exec.Cmd
	flags   string
	out     *output
	stop    context.CancelFunc
}

// Start starts what Run runs. The launcher, and with it the ranks, are killed when the
// test's time is up.
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

// outside is the environment without what another launcher has left in it.
func outside() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PMIX_") && !strings.HasPrefix(e, "OMPI_") && !strings.HasPrefix(e, "SLURM_") {
			env = append(env, e)
		}
	}
	return env
}

// output is a buffer for several to write to.
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
