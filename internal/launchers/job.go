package launchers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/fork"
)

// Job is what a launcher is to run.
type Job struct {
	Size int
	// Program is the name of one of Main's programs; Ferry; or the path of a file.
	Program string
	Args    []string // for a file, and for Ferry
	Env     []string // further variables, NAME=value
	Timeout time.Duration
}

// Ferry is the program that is the command ferry.
const Ferry = "ferry"

// usualTimeout is the time of a job that names none.
const usualTimeout = time.Minute

// Rank is what became of one rank. A program of Main's says how it ended; of a file
// the launcher's status is all that there is.
type Rank struct {
	Output string // standard output and error
	Begun  bool
	Ended  bool   // by its own doing, with Err
	Err    string // of a program; "" if it returned nil
}

// Result is what became of a job.
type Result struct {
	Ranks []Rank
	// Launcher is what the launcher's process ended with, nil for status 0, and Output
	// what it said itself.
	Launcher error
	Output   string
	Time     time.Duration // from its start to its end
	// Segments are the files of shared memory that the job has left.
	Segments []string
}

// Running is a job that has begun.
type Running struct {
	job     Job
	cmd     *exec.Cmd
	thread  *fork.Thread
	dir     string // what ranks write, see rank.go
	shm     string
	mark    string // in the environment of all its processes
	begun   time.Time
	waited  chan struct{}
	result  error // of the launcher, once waited is closed
	elapsed time.Duration
}

// Begin starts a job. When the test ends, so do its processes.
func (s *Started) Begin(t testing.TB, job Job) *Running {
	t.Helper()
	if job.Timeout == 0 {
		job.Timeout = usualTimeout
	}
	r := &Running{job: job, dir: shortDir(t), shm: segments(t), mark: envMark + "=" + rand.Text(), thread: fork.New(), waited: make(chan struct{})}
	tmp := filepath.Join(r.dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(r.dir, "launcher"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd = s.Command(job.Size, self, append([]string{job.Program}, job.Args...)...)
	r.cmd.Env = append(r.cmd.Env, r.mark, envDir+"="+r.dir, envRank+"="+s.Rank, envTimeout+"="+job.Timeout.String(), "TMPDIR="+tmp, "FERRY_BTL_SHM_DIR="+r.shm)
	r.cmd.Env = append(r.cmd.Env, job.Env...)
	r.cmd.Stdout, r.cmd.Stderr = said, said
	r.begun = time.Now()
	if err := r.thread.Start(r.cmd); err != nil {
		r.thread.Close()
		t.Fatal(err)
	}
	go func() {
		r.result = r.cmd.Wait()
		r.elapsed = time.Since(r.begun)
		close(r.waited)
	}()
	t.Cleanup(func() {
		if left := endAll(r.mark); len(left) > 0 {
			t.Errorf("can't end %v", describe(left))
		}
		<-r.waited
		r.thread.Close()
	})
	return r
}

// Await waits until every rank has called Ready, or has begun if the program is a file.
func (r *Running) Await(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.job.Timeout)
	defer cancel()
	sign := fileOutput
	if isProgram(r.job.Program) {
		sign = fileReady
	}
	for {
		n := 0
		for rank := range r.job.Size {
			if isFile(r.file(rank, sign)) {
				n++
			}
		}
		if n == r.job.Size {
			return
		}
		select {
		case <-time.After(step):
		case <-r.waited:
			t.Fatalf("the job has ended, and %d of %d ranks were ready\n%s", n, r.job.Size, r.look())
		case <-ctx.Done():
			t.Fatalf("%d of %d ranks are ready after %v\n%s", n, r.job.Size, time.Since(r.begun), r.look())
		}
	}
}

// Kill kills the launcher's process with SIGKILL, and nothing else.
func (r *Running) Kill(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Processes lists those of the job, the launcher included.
func (r *Running) Processes() []string { return describe(marked(r.mark)) }

// Gone waits until none is left. It returns those that stay longer.
func (r *Running) Gone(limit time.Duration) []string { return describe(awaitNone(r.mark, limit)) }

// Wait waits until the launcher has ended. A job that is not over in time is ended, and
// the result says so. Ranks may live on where the launcher was killed; see Gone.
func (r *Running) Wait() Result {
	var late error
	select {
	case <-r.waited:
	case <-time.After(time.Until(r.begun.Add(r.job.Timeout))):
		late = fmt.Errorf("ended after %v: these ran: %v", r.job.Timeout, r.Processes())
		endAll(r.mark)
		<-r.waited
	}
	res := r.look()
	res.Launcher, res.Time = errors.Join(late, r.result), r.elapsed
	return res
}

// look gathers what there is now.
func (r *Running) look() Result {
	res := Result{Ranks: make([]Rank, r.job.Size)}
	for i := range res.Ranks {
		rank := &res.Ranks[i]
		out, err := os.ReadFile(r.file(i, fileOutput))
		rank.Output, rank.Begun = string(out), err == nil
		end, err := os.ReadFile(r.file(i, fileEnd))
		rank.Err, rank.Ended = string(end), err == nil
	}
	said, _ := os.ReadFile(filepath.Join(r.dir, "launcher"))
	res.Output = string(said)
	entries, _ := os.ReadDir(r.shm)
	for _, e := range entries {
		res.Segments = append(res.Segments, e.Name())
	}
	return res
}

func (r *Running) file(rank int, what string) string {
	return filepath.Join(r.dir, fmt.Sprint(rank, what))
}

// Look returns what there is of a job whose ranks may still run.
func (r *Running) Look() Result { return r.look() }

// String is for a test that fails.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "launcher: %v after %v\n%s", r.Launcher, r.Time.Round(time.Millisecond), r.Output)
	for i, rank := range r.Ranks {
		fmt.Fprintf(&b, "rank %d: begun %t, ended %t: %s\n%s", i, rank.Begun, rank.Ended, rank.Err, rank.Output)
	}
	return b.String()
}

// Failures says which ranks did not end as they should: of a program every rank returns
// nil; of a file or Ferry every rank has begun. The launcher ends with status 0.
func (r Result) Failures(program string) error {
	err := r.Launcher
	for i, rank := range r.Ranks {
		switch named := isProgram(program); {
		case !rank.Begun:
			err = errors.Join(err, fmt.Errorf("rank %d has not begun", i))
		case named && !rank.Ended:
			err = errors.Join(err, fmt.Errorf("rank %d has not ended by itself", i))
		case rank.Err != "":
			err = errors.Join(err, fmt.Errorf("rank %d: %s", i, rank.Err))
		}
	}
	return err
}

// segments makes a directory in memory for a job's segments.
func segments(t testing.TB) string {
	t.Helper()
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "ferry-l")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
