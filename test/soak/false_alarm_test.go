package soak

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
)

// alarmRun is the size of one run of TestFalseAlarm.
type alarmRun struct {
	ranks  int
	period time.Duration
	// bootstrap.process_timeout.
	timeout time.Duration
	// Stop of one rank or of all, shorter than timeout.
	stop time.Duration
	// Stop of all processes of the job, longer than timeout.
	pause time.Duration
}

var (
	shortAlarms = alarmRun{ranks: 8, period: time.Second, timeout: 2 * time.Second, stop: time.Second / 2, pause: 3 * time.Second}
	fullAlarms  = alarmRun{ranks: 16, period: 290 * time.Second, timeout: 5 * time.Second, stop: 2 * time.Second, pause: 7 * time.Second}
)

// Ranks, and whole jobs with their launcher, are stopped while they compute and allocate on too few
// processors. At the end one rank is stopped for longer. Only that rank is reported dead, and it is
// notified when it continues. The test takes 10 minutes with -full.
func TestFalseAlarm_BusyAndStoppedRanks_NoneIsReportedDead(t *testing.T) {
	needs.Time(t)
	a := shortAlarms
	if *full {
		a = fullAlarms
	}
	t.Run("ferry run", a.underFerryRun)
	t.Run("members", a.underMembers)
}

// extendTimeout extends the default timeout of go test to cover 10 minutes of TestFalseAlarm.
func extendTimeout() {
	flag.Parse()
	if f := flag.Lookup("test.timeout"); *full && f != nil && f.Value.String() == "10m0s" {
		_ = f.Value.Set("12m") // A valid duration.
	}
}

func (a alarmRun) underMembers(t *testing.T) {
	j := startMembers(t, a.ranks, 1, "busy", startHere, fmt.Sprint("FERRY_BOOTSTRAP_PROCESS_TIMEOUT=", a.timeout))
	j.await("ready", a.ranks)
	ranks := rankPIDs(t, j.steps, a.ranks)
	a.disturb(t, ranks, 0)
	j.complete("end")
	j.await("quiet", a.ranks)
	victim := a.ranks - 1
	sendSignal(t, syscall.SIGSTOP, ranks[victim])
	j.await("alarm", victim)
	sendSignal(t, syscall.SIGCONT, ranks[victim])
	j.wait()
}

func (a alarmRun) underFerryRun(t *testing.T) {
	steps := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "-n", fmt.Sprint(a.ranks), "--tolerate", "1", "-x", envFerry+"=0",
		"--set", fmt.Sprint("bootstrap.process_timeout=", a.timeout), os.Args[0])
	cmd.Env = append(os.Environ(), envFerry+"=1", "XDG_RUNTIME_DIR="+t.TempDir(), "FERRY_CONFIG="+os.DevNull, "FERRY_BTL_SHM_DIR="+segments(t),
		"LOCALTEST_PROGRAM=busy", "LOCALTEST_TIMEOUT=30m", envSteps+"="+steps)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	j := &membersJob{t: t, n: a.ranks, steps: steps, out: make([]bytes.Buffer, a.ranks), ended: make([]chan error, a.ranks)}
	t.Cleanup(func() {
		if cmd.Process.Kill() == nil {
			<-ended
		}
		if t.Failed() {
			t.Logf("%s", out.String())
		}
	})
	for rank := range j.ended {
		j.ended[rank] = make(chan error) // The launcher reports the end.
	}
	j.await("ready", a.ranks)
	ranks := rankPIDs(t, steps, a.ranks)
	a.disturb(t, ranks, cmd.Process.Pid)
	j.complete("end")
	j.await("quiet", a.ranks)
	victim := a.ranks - 1
	sendSignal(t, syscall.SIGSTOP, ranks[victim])
	j.await("alarm", victim)
	sendSignal(t, syscall.SIGCONT, ranks[victim])
	err := <-ended
	ended <- nil
	if err != nil || !bytes.Contains(out.Bytes(), []byte("has answered no query")) {
		t.Errorf("%v", err)
	}
}

// disturb stops ranks for the period, and pauses the job once at the end.
func (a alarmRun) disturb(t *testing.T, ranks []int, launcher int) {
	t.Helper()
	stops := 0
	for end := time.Now().Add(a.period); time.Now().Before(end); stops++ {
		some := ranks
		if stops%5 < 4 {
			some = []int{ranks[rand.IntN(len(ranks))]}
		}
		a.pauseFor(t, a.stop, some...)
		time.Sleep(a.stop / 4) // The ranks continue their work.
	}
	all := append(ranks[:len(ranks):len(ranks)], launcher)
	if launcher == 0 {
		all = ranks
	}
	a.pauseFor(t, a.pause, all...)
	t.Logf("%d ranks, process_timeout %v: %d stops of %v, and the whole job for %v", a.ranks, a.timeout, stops, a.stop, a.pause)
}

// pauseFor stops processes for a time.
func (a alarmRun) pauseFor(t *testing.T, d time.Duration, processes ...int) {
	t.Helper()
	sendSignal(t, syscall.SIGSTOP, processes...)
	time.Sleep(d)
	sendSignal(t, syscall.SIGCONT, processes...)
}

// sendSignal sends a signal to processes.
func sendSignal(t *testing.T, sig syscall.Signal, processes ...int) {
	t.Helper()
	for _, pid := range processes {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatalf("process %d: %v", pid, err)
		}
	}
}

// rankPIDs returns the processes of the ranks.
func rankPIDs(t *testing.T, steps string, n int) (all []int) {
	t.Helper()
	for rank := range n {
		b, err := os.ReadFile(filepath.Join(steps, fmt.Sprint("ready.", rank)))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(string(b))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

// busyRank computes, allocates and exchanges values until the test ends that. Then the last rank is
// stopped.
func busyRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	if err := errors.Join(mpi.Barrier(ctx, c), completeStep(c.Rank(), "ready", strconv.Itoa(os.Getpid()))); err != nil {
		return err
	}
	var kept [32][]byte // About 20 MiB, so that garbage collections have work.
	for round, last := 0, []bool{false}; !last[0]; round++ {
		for i := range 50 {
			kept[(round+i)%len(kept)] = make([]byte, 1<<20-rand.IntN(1<<19))
		}
		computeFor(rand.N(100 * time.Millisecond))
		last[0] = c.Rank() == 0 && isComplete("end")
		if err := mpi.Bcast(ctx, c, last, 0); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := mpi.Barrier(ctx, c); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if failed := c.Failed(); len(failed) > 0 {
		return fmt.Errorf("false alarm: ranks %v", failed)
	}
	if err := completeStep(c.Rank(), "quiet", ""); err != nil {
		return err
	}
	victim := c.Size() - 1
	if c.Rank() == victim {
		var failed *mpi.ProcFailedError
		if _, err := c.Recv(ctx, nil, mpi.AnySource, 1); !errors.As(err, &failed) || !slices.Equal(failed.Ranks, []int{victim}) {
			return fmt.Errorf("receive at the rank that was reported dead: %w", err)
		}
		return nil
	}
	if _, err := c.Recv(ctx, nil, victim, 1); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("receive from the stopped rank: %w", err)
	}
	return completeStep(c.Rank(), "alarm", "")
}

var product atomic.Int64

// computeFor computes for a time.
func computeFor(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for x := range 100_000 {
			product.Store(int64(x * x))
		}
	}
}
