package watch

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/control"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// runningJob is a job with a page.
type runningJob struct {
	*testing.T
	page   *Page
	dir    string
	cancel context.CancelFunc
	// Closed at the end of the job.
	done chan struct{}
}

// startJob starts n ranks of a program of this file, and ends them with the test.
func startJob(t *testing.T, program string, j launch.Job) *runningJob {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &runningJob{T: t, page: openPage(t, defaultBounds), dir: t.TempDir(), cancel: cancel, done: make(chan struct{})}
	t.Setenv("XDG_RUNTIME_DIR", r.dir)
	j.Program, j.Env, j.Observer, j.IsControllable = os.Args[0], []string{envProgram + "=" + program}, r.page, true
	if j.Stderr == nil {
		j.Stderr = os.Stderr
	}
	go func() {
		defer close(r.done)
		if _, err := j.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	t.Cleanup(r.end)
	return r
}

func (r *runningJob) end() {
	r.cancel()
	<-r.done
}

// resize makes a change, as ferry resize does.
func (r *runningJob) resize(op control.Op, n int) {
	r.Helper()
	var dirs []string
	await(r.T, "the control socket", func() bool {
		dirs, _ = filepath.Glob(filepath.Join(r.dir, "*", control.Name))
		return len(dirs) == 1
	})
	c, err := control.Dial(filepath.Dir(dirs[0]))
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Resize(r.Context(), control.Resize{Op: op, N: n, Pset: []byte("mpi://WORLD"), Wait: patience}); err != nil {
		r.Fatalf("%s %d: %v", op, n, err)
	}
}

// pid returns the process of a rank with a session.
func (r *runningJob) pid(rank int) (pid int) {
	r.Helper()
	await(r.T, "a session", func() bool {
		for _, x := range r.page.state(0).Ranks {
			if x.Rank == rank && x.PID != 0 {
				pid = x.PID
			}
		}
		return pid != 0
	})
	return pid
}

func TestJob_NoViewer_RanksGetNoMessage(t *testing.T) {
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer stdin.Close()
	out, stdout := io.Pipe()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	defer stdout.Close()
	j := startJob(t, "listener", launch.Job{Part: launch.Part{RankCount: 1}, Stdin: in, Output: launch.Output{Stdout: stdout}})
	if line := <-lines; line != "ready" {
		t.Fatal(line)
	}
	c := newClient(t)
	r, err := c.Get(j.page.URL()) // Only the script of the page polls.
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	time.Sleep(2 * requestInterval)
	if n := len(lines); n > 0 {
		t.Errorf("%d messages without a viewer, the first is %s", n, <-lines)
	}
	begin := time.Now()
	for time.Since(begin) < 2*requestInterval {
		readState(t, c, j.page, 0)
		time.Sleep(10 * time.Millisecond)
	}
	most := 1 + int(time.Since(begin)/requestInterval)
	time.Sleep(2 * requestInterval) // The viewer has left.
	stdin.Close()
	<-j.done
	stdout.Close()
	var got []string
	for line := range lines {
		got = append(got, line)
	}
	t.Logf("messages to the rank: none without a viewer, and %q with one", got)
	if len(got) < 2 || len(got) > most || strings.Join(got, "") != strings.Repeat(got[0], len(got)) || !strings.HasSuffix(got[0], " traffic") {
		t.Errorf("messages %q, want 2 to %d requests for traffic", got, most)
	}
}

func TestJob_GrowsShrinksAndLosesARank_StateFollows(t *testing.T) {
	j := startJob(t, "elastic", launch.Job{Part: launch.Part{RankCount: 2}, MaxRanks: 4, FailurePolicy: launch.FailurePolicy{ContinuesOnFailure: true}})
	c := newClient(t)
	var s state
	var texts string
	after := int64(0)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ranks %+v, changes:\n%s", s.Ranks, texts)
		}
	})
	until := func(what string, isTrue func() bool) {
		t.Helper()
		await(t, what, func() bool {
			s = readState(t, c, j.page, after)
			for _, x := range s.Changes {
				texts += x.Text + "\n"
				after = x.Serial
			}
			return isTrue()
		})
	}
	rank := func(n int) string {
		for _, r := range s.Ranks {
			if r.Rank == n {
				return r.State
			}
		}
		return ""
	}
	until("rates of a pair", func() bool {
		return len(s.Pairs) == 1 && s.Pairs[0].Transport == "shm" && s.Ranks[0].IsRated && s.Ranks[0].CommCount == 1
	})
	j.resize(control.Add, 2)
	until("4 ranks", func() bool { return rank(3) == "open" && strings.Contains(texts, "grow of mpi://WORLD finished") })
	j.resize(control.Sub, 1)
	until("rank 3 to leave", func() bool { return rank(3) == "" && strings.Contains(texts, "rank 3 ended") })
	process, err := os.FindProcess(j.pid(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	until("the failure of rank 2", func() bool {
		return rank(2) == "failed" && strings.Contains(texts, "rank 2 failed: signal: killed") && rank(1) == "open"
	})
	j.end()
	if s = readState(t, c, j.page, 0); !s.IsEnding {
		t.Error("the job has ended, and its page shows it as running")
	}
}

// Ranks of different nodes answer as those of one do.
func TestJob_DividedIntoNodes_RanksAnswer(t *testing.T) {
	j := startJob(t, "elastic", launch.Job{Part: launch.Part{RankCount: 2}, NodeCount: 2})
	c := newClient(t)
	var s state
	await(t, "rates of a pair over TCP", func() bool {
		s = readState(t, c, j.page, 0)
		return len(s.Pairs) == 1 && s.Pairs[0].Transport == "tcp" && s.Ranks[1].IsRated
	})
	if s.NodeCount != 2 || s.Ranks[0].Node != 0 || s.Ranks[1].Node != 1 {
		t.Errorf("%d nodes, ranks %+v", s.NodeCount, s.Ranks)
	}
}

// A stopped rank is shown as one that does not respond.
func TestJob_StoppedRank_IsNotResponding(t *testing.T) {
	j := startJob(t, "elastic", launch.Job{Part: launch.Part{RankCount: 2}})
	c := newClient(t)
	pid := j.pid(1)
	await(t, "an answer of rank 1", func() bool { return readState(t, c, j.page, 0).Ranks[1].IsRated })
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of answers", func() bool {
		s := readState(t, c, j.page, 0)
		return s.Ranks[1].State == stateUnresponsive && s.Ranks[0].State == "open"
	})
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, "an answer after the stop", func() bool { return readState(t, c, j.page, 0).Ranks[1].State == "open" })
}
