package soak

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

// A rank is killed at a random moment. Pending operations of the others with it end with
// ErrProcFailed within a second, and messages among the others continue and are right. The harness
// continues as `ferry run --on-failure continue` does.
func TestKill(t *testing.T) { killRepeatedly(t, size(200, 6)) }

func killRepeatedly(t *testing.T, n int, env ...string) {
	t.Helper()
	killWithExcuse(t, n, nil, env...)
}

// killWithExcuse is killRepeatedly with an excuse. Survivors may report that a resource that they shared with the
// dead rank is unusable, which excused detects in their outputs.
func killWithExcuse(t *testing.T, n int, excused func(outputs []string) bool, env ...string) {
	t.Helper()
	var worst time.Duration
	told := 0
	for i := range n {
		dir := segments(t)
		r := localtest.RunJob(t, localtest.Job{Size: 3, Nodes: nodesOf(env), Program: "kill", MayFail: true, Timeout: time.Minute, Env: append(slices.Clone(env),
			"FERRY_BTL_SHM_DIR="+dir, fmt.Sprint(envRounds, "=", i), "SOAK_DEATH="+filepath.Join(dir, "death"))})
		excuse := excused != nil && excused(r.Output[:2])
		if excuse {
			told++
		}
		for rank, err := range r.Exit {
			if rank < 2 && err != nil && !excuse {
				t.Errorf("kill %d: rank %d: %v\n%s", i, rank, err, r.Output[rank])
			}
			var exit *exec.ExitError
			if rank == 2 && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
				t.Fatalf("kill %d: rank 2 was not killed: %v\n%s", i, err, r.Output[rank])
			}
		}
		for rank := range 2 {
			after, _, _ := strings.Cut(r.Output[rank], " ")
			if d, err := time.ParseDuration(after); err == nil {
				worst = max(worst, d)
			}
		}
	}
	t.Logf("%d kills: ErrProcFailed at most %v after each", n, worst)
	if told > 0 {
		t.Logf("in %d of them the survivors lost their own messages, with errors in both", told)
	}
}

// killRank is the program of all ranks. Rank 2 dies.
func killRank(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	rng := rand.New(rand.NewPCG(uint64(rounds()), uint64(c.Rank())))
	death := os.Getenv("SOAK_DEATH")
	if c.Rank() == 2 {
		go func() {
			time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
			// The time is on disk before the death.
			_ = os.WriteFile(death, fmt.Append(nil, monotonicNow()), 0o600)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
	}
	other, apart := 1-c.Rank(), make(chan error, 1)
	pair := func(n int) error { // Traffic that does not involve rank 2.
		out, in := make([]int64, 5000), make([]int64, 5000)
		for i := range n {
			out[0], out[4999] = int64(i), int64(i)
			if _, err := mpi.Sendrecv(ctx, c, out, other, 9, in, other, 9); err != nil {
				return err
			}
			if in[0] != int64(i) || in[4999] != int64(i) {
				return fmt.Errorf("message %d among the others has %d", i, in[0])
			}
		}
		return nil
	}
	if c.Rank() < 2 {
		go func() { apart <- pair(2000) }()
	}
	var err error
	for err == nil {
		err = exchangeWithVictim(ctx, rng, c)
	}
	if c.Rank() == 2 {
		return fmt.Errorf("the victim is alive: %w", err)
	}
	late := time.Duration(monotonicNow() - readTime(death))
	switch {
	case !errors.Is(err, mpi.ErrProcFailed):
		return fmt.Errorf("want ErrProcFailed: %w", err)
	case late > promptLimit:
		return fmt.Errorf("%v after the death: %w", late, err)
	}
	// New calls fail at once, and everything else continues.
	if err := c.Send(ctx, make([]byte, 1<<20), 2, 0); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("new send: %w", err)
	}
	if err := errors.Join(<-apart, pair(100)); err != nil {
		return fmt.Errorf("the others: %w", err)
	}
	fmt.Printf("%v until ErrProcFailed\n", late.Round(10*time.Microsecond))
	return nil
}

func readTime(path string) (t int64) {
	b, _ := os.ReadFile(path)
	fmt.Sscan(string(b), &t)
	return t
}

// exchangeWithVictim is one exchange with rank 2. Each side selects its form independently.
func exchangeWithVictim(ctx context.Context, rng *rand.Rand, c *mpi.Comm) error {
	peers := []int{2}
	if c.Rank() == 2 {
		peers = []int{0, 1}
	}
	for _, peer := range peers {
		n := []int{8, 5000, 300_000}[rng.IntN(3)]
		r, err := c.Irecv(make([]byte, 300_000), peer, 1)
		if err != nil {
			return err
		}
		switch rng.IntN(3) {
		case 0:
			err = c.Send(ctx, make([]byte, n), peer, 1)
		case 1:
			err = c.Ssend(ctx, make([]byte, n), peer, 1)
		default:
			var s mpi.Request
			if s, err = c.Isend(make([]byte, n), peer, 1); err == nil {
				reqs := []mpi.Request{s, r}
				if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
					return err
				}
				continue
			}
		}
		if err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// The next run removes the files of a killed launcher and its killed ranks. A concurrent job is
// unaffected.
func TestStale(t *testing.T) {
	shm, runtimeDir := segments(t), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ferry := func(program string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0], "run", "-n", "2", "-x", envFerry+"=0", os.Args[0])
		cmd.Env = append(os.Environ(), envFerry+"=1", "XDG_RUNTIME_DIR="+runtimeDir, "FERRY_BTL_SHM_DIR="+shm,
			"LOCALTEST_PROGRAM="+program, "LOCALTEST_TIMEOUT=1m")
		cmd.Stderr = os.Stderr
		return cmd
	}
	dead, alive := startJob(t, ferry("hold")), startJob(t, ferry("hold"))
	for range 2 {
		dead.pids = append(dead.pids, dead.readNumber(t))
		alive.pids = append(alive.pids, alive.readNumber(t))
	}
	lived := files(t, shm)
	for _, pid := range append([]int{dead.cmd.Process.Pid}, dead.pids...) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	_ = dead.cmd.Wait()
	awaitCondition(ctx, t, func() bool { // The kernel has dropped their locks.
		for _, pid := range dead.pids {
			if isRunning(pid) {
				return false
			}
		}
		return true
	})
	if n := len(files(t, shm)); n != len(lived) || n < 4 {
		t.Fatalf("%d segments before the kill, %d after it, want equal numbers", len(lived), n)
	}
	// A launcher's directory counts as stale when it is a minute old.
	sockets, err := filepath.Glob(filepath.Join(runtimeDir, "ferry-*", "bootstrap"))
	if err != nil || len(sockets) != 2 {
		t.Fatalf("sockets %v, %v", sockets, err)
	}
	hourAgo := time.Now().Add(-time.Hour)
	for _, s := range sockets {
		if err := os.Chtimes(s, hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := ferry("quick").Output(); err != nil {
		t.Fatalf("the next run: %v\n%s", err, out)
	}
	if left := files(t, shm); len(left) != len(lived)/2 {
		t.Errorf("%d segments remain, want the %d of the live job: %v", len(left), len(lived)/2, left)
	}
	if dirs := files(t, runtimeDir); len(dirs) != 1 {
		t.Errorf("remaining runtime directories: %v", dirs)
	}
	// The live job ends normally.
	alive.stdin.Close()
	if err := alive.cmd.Wait(); err != nil {
		t.Errorf("the live job: %v", err)
	}
	if left := append(files(t, shm), files(t, runtimeDir)...); len(left) > 0 {
		t.Errorf("remaining at the end: %v", left)
	}
}

// runningJob is a running launcher.
type runningJob struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Scanner
	pids  []int
}

func startJob(t *testing.T, cmd *exec.Cmd) *runningJob {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &runningJob{cmd: cmd, stdin: in, out: bufio.NewScanner(out)}
}

// readNumber reads a number that a rank has printed.
func (j *runningJob) readNumber(t *testing.T) (n int) {
	t.Helper()
	if !j.out.Scan() {
		t.Fatalf("no output of a rank: %v", j.out.Err())
	}
	if _, err := fmt.Sscan(j.out.Text(), &n); err != nil {
		t.Fatalf("a rank printed %q", j.out.Text())
	}
	return n
}

func isRunning(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(b, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z")) && !bytes.HasPrefix(state, []byte("X"))
}

func awaitCondition(ctx context.Context, t *testing.T, cond func() bool) {
	t.Helper()
	for !cond() {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
}

// holdRank communicates, prints its process id, and waits for the end of rank 0's input.
func holdRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	fmt.Println(os.Getpid())
	if c.Rank() == 0 {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			return err
		}
		return mpi.Send(ctx, c, make([]byte, 1<<20), 1, 0)
	}
	_, err := mpi.Recv(ctx, c, make([]byte, 1<<20), 0, 0)
	return err
}

func barrierRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error { return mpi.Barrier(ctx, c) }
