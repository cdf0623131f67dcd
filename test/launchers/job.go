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

// Job is a job of a launcher.
type Job struct {
	Size int
	// Program is the name of one of Main's programs, Ferry, or the path of a file.
	Program string
	// Arguments of a file and of Ferry.
	ProgramArgs []string
	ExtraEnv    []string
	Timeout     time.Duration
}

// Ferry is the program that is the command ferry.
const Ferry = "ferry"

// defaultTimeout is the default of Job.Timeout.
const defaultTimeout = time.Minute

// Rank is the outcome of one rank. A program of Main reports its error. The outcome of a file is
// that of the launcher.
type Rank struct {
	// Standard output and error.
	Output   string
	HasBegun bool
	// Whether the program has returned.
	HasReturned bool
	// Error of the program, "" if it returned nil.
	Err string
}

// Result is the outcome of a job.
type Result struct {
	Ranks      []Rank
	AddedRanks []Rank
	// LauncherErr is the error of the launcher's process, nil for status 0. LauncherOutput is its own output.
	LauncherErr    error
	LauncherOutput string
	// From the start to the end.
	ElapsedTime time.Duration
	// Files of shared memory.
	RemainingSegments []string
}

// Running is a started job.
type Running struct {
	job    Job
	cmd    *exec.Cmd
	thread *fork.Thread
	// See rank.go.
	rankFilesDir string
	segmentDir   string
	// In the environment of all its processes.
	envMark   string
	startedAt time.Time
	ended     chan struct{}
	// Error of the launcher, valid once ended is closed.
	launcherErr error
	elapsed     time.Duration
}

// Begin starts a job. Its processes end with the test.
func (s *Started) Begin(t testing.TB, job Job) *Running {
	t.Helper()
	if job.Timeout == 0 {
		job.Timeout = defaultTimeout
	}
	r := &Running{job: job, rankFilesDir: shortDir(t), segmentDir: segmentDir(t), envMark: envMark + "=" + rand.Text(), thread: fork.New(), ended: make(chan struct{})}
	tmp := filepath.Join(r.rankFilesDir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(r.rankFilesDir, "launcher"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd = s.Command(job.Size, self, append([]string{job.Program}, job.ProgramArgs...)...)
	r.cmd.Env = append(r.cmd.Env, r.envMark, envDir+"="+r.rankFilesDir, envProgram+"="+job.Program, envRank+"="+s.RankVariable, envTimeout+"="+job.Timeout.String(), "TMPDIR="+tmp, "FERRY_BTL_SHM_DIR="+r.segmentDir)
	r.cmd.Env = append(r.cmd.Env, job.ExtraEnv...)
	r.cmd.Stdout, r.cmd.Stderr = said, said
	r.startedAt = time.Now()
	if err := r.thread.Start(r.cmd); err != nil {
		r.thread.Close()
		t.Fatal(err)
	}
	go func() {
		r.launcherErr = r.cmd.Wait()
		r.elapsed = time.Since(r.startedAt)
		close(r.ended)
	}()
	t.Cleanup(func() {
		if left := killAll(r.envMark); len(left) > 0 {
			t.Errorf("cannot kill %v", describe(left))
		}
		<-r.ended
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
		case <-time.After(pollInterval):
		case <-r.ended:
			t.Fatalf("the job ended with %d of %d ranks ready\n%s", n, r.job.Size, r.gather())
		case <-ctx.Done():
			t.Fatalf("%d of %d ranks are ready after %v\n%s", n, r.job.Size, time.Since(r.startedAt), r.gather())
		}
	}
}

// Kill kills the launcher's process only, with SIGKILL.
func (r *Running) Kill(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Processes describes the processes of the job, including the launcher.
func (r *Running) Processes() []string { return describe(markedProcesses(r.envMark)) }

// AwaitEnd waits until all processes have ended. It describes those that remain after limit.
func (r *Running) AwaitEnd(limit time.Duration) []string {
	return describe(awaitNone(r.envMark, limit))
}

// Wait waits until the launcher has ended. It kills a job after its timeout and reports that in the
// result. Ranks may outlive a killed launcher (see AwaitEnd).
func (r *Running) Wait() Result {
	var late error
	select {
	case <-r.ended:
	case <-time.After(time.Until(r.startedAt.Add(r.job.Timeout))):
		late = fmt.Errorf("killed after %v with processes %v", r.job.Timeout, r.Processes())
		killAll(r.envMark)
		<-r.ended
	}
	res := r.gather()
	res.LauncherErr, res.ElapsedTime = errors.Join(late, r.launcherErr), r.elapsed
	return res
}

// gather returns the current outcome.
func (r *Running) gather() Result {
	res := Result{Ranks: make([]Rank, r.job.Size)}
	for i := range res.Ranks {
		res.Ranks[i] = readRank(r.file(i, ""))
	}
	added, _ := filepath.Glob(filepath.Join(r.rankFilesDir, addedPrefix+"*"+fileOutput))
	for _, file := range added {
		res.AddedRanks = append(res.AddedRanks, readRank(strings.TrimSuffix(file, fileOutput)))
	}
	said, _ := os.ReadFile(filepath.Join(r.rankFilesDir, "launcher"))
	res.LauncherOutput = string(said)
	entries, _ := os.ReadDir(r.segmentDir)
	for _, e := range entries {
		res.RemainingSegments = append(res.RemainingSegments, e.Name())
	}
	return res
}

// readRank reads the files of a process, whose paths begin with path.
func readRank(path string) (rank Rank) {
	out, err := os.ReadFile(path + fileOutput)
	rank.Output, rank.HasBegun = string(out), err == nil
	end, err := os.ReadFile(path + fileEnd)
	rank.Err, rank.HasReturned = string(end), err == nil
	return rank
}

func (r *Running) file(rank int, what string) string {
	return filepath.Join(r.rankFilesDir, fmt.Sprint(rank, what))
}

// Current returns the current outcome of a job whose ranks may still run.
func (r *Running) Current() Result { return r.gather() }

// String formats the result for the message of a failing test.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "launcher: %v after %v\n%s", r.LauncherErr, r.ElapsedTime.Round(time.Millisecond), r.LauncherOutput)
	for i, rank := range r.Ranks {
		fmt.Fprintf(&b, "rank %d: begun %t, ended %t: %s\n%s", i, rank.HasBegun, rank.HasReturned, rank.Err, rank.Output)
	}
	for _, rank := range r.AddedRanks {
		fmt.Fprintf(&b, "added: ended %t: %s\n%s", rank.HasReturned, rank.Err, rank.Output)
	}
	return b.String()
}

// Failures returns the errors of the ranks and of the launcher. Every rank of a program must return
// nil, and every rank of a file or of Ferry must have begun. The launcher must end with status 0.
func (r Result) Failures(program string) error {
	err := r.LauncherErr
	for i, rank := range r.Ranks {
		switch named := isProgram(program); {
		case !rank.HasBegun:
			err = errors.Join(err, fmt.Errorf("rank %d has not begun", i))
		case named && !rank.HasReturned:
			err = errors.Join(err, fmt.Errorf("rank %d did not return", i))
		case rank.Err != "":
			err = errors.Join(err, fmt.Errorf("rank %d: %s", i, rank.Err))
		}
	}
	return err
}

// segmentDir creates a directory in memory for a job's segments.
func segmentDir(t testing.TB) string {
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
