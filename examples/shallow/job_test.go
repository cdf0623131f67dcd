package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// TestShallow_UsersResizeAndKill_SameChecksum changes and kills processes of a job from outside, in a random order.
func TestShallow_UsersResizeAndKill_SameChecksum(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", first)
	const grid, longest = 32, 2000000
	for steps := 20000; ; steps *= 4 {
		if steps > longest {
			t.Fatalf("not done within %d steps", longest)
		}
		job := ferrytest.Start(t, "-n", "4", "--max-ranks", "8", "--on-failure", "continue", "shallow", "-grid", fmt.Sprint(grid), "-steps", fmt.Sprint(steps))
		job.Line(t)
		if !disturbJob(t, job, rand.New(rand.NewPCG(first, 0))) {
			out, err := job.Wait() // It was too short.
			t.Logf("%d steps: %s%v", steps, out, err)
			continue
		}
		out := job.Succeeds(t)
		want := solveJob(t, mpitest.Job{Size: 1, Timeout: time.Minute}, options{gridSize: grid, stepCount: steps, checkpointInterval: steps, output: io.Discard})
		if !strings.Contains(out, fmt.Sprintf("ok: checksum %016x, ", want.checksum)) || strings.Contains(out, " 0 recoveries") {
			t.Errorf("%s\nwant the checksum of\n%v", out, want)
		}
		return
	}
}

// disturbJob kills a rank and resizes the job, several times. It reports false if the job ends before. Most changes are possible
// only after the dead process has been replaced or removed.
func disturbJob(t *testing.T, job *ferrytest.Job, rng *rand.Rand) bool {
	size, started := 4, 4
	for range 5 {
		for attempts := 0; !job.Kill(rng.IntN(started)); attempts++ {
			if attempts == 100 {
				return false
			}
		}
		n := 1 + rng.IntN(2)
		change := []string{"--add", "--sub", "--replace"}[rng.IntN(3)]
		switch {
		case size-n < 2:
			change = "--add"
		case size+n > 8:
			change = "--sub"
		}
		out, isDone := job.Resize(change, fmt.Sprint(n))
		for ; !isDone; out, isDone = job.Resize(change, fmt.Sprint(n)) {
			if strings.Contains(out, "runs no job") {
				return false
			}
			if !strings.Contains(out, "failed: rank") && !strings.Contains(out, "pending") {
				t.Logf("%s %d: %s", change, n, out)
			}
		}
		t.Logf("%s %d: %s", change, n, out)
		counts := regexp.MustCompile(`^(\d+) added, .* has (\d+) ranks`).FindStringSubmatch(out)
		if counts == nil {
			t.Fatalf("ferry resize: %q", out)
		}
		added, _ := strconv.Atoi(counts[1])
		size, _ = strconv.Atoi(counts[2])
		started += added + 1 // One in place of the dead rank.
	}
	return true
}

// TestShallow_HolderOfSetsDies_SameChecksum kills rank 0 under a launcher where it holds the process sets. The job can no longer change.
func TestShallow_HolderOfSetsDies_SameChecksum(t *testing.T) {
	mpirun := needs.Program(t, "mpirun.openmpi", "openmpi-bin")
	const grid, longest = 32, 2000000
	for steps := 20000; steps <= longest; steps *= 4 {
		out, isKilled := runAndKill(t, mpirun, "-grid", fmt.Sprint(grid), "-steps", fmt.Sprint(steps))
		needOneJob(t, out)
		if !isKilled || strings.Contains(out, " 0 recoveries, 3 ranks") {
			continue // It was too short.
		}
		want := solveJob(t, mpitest.Job{Size: 1, Timeout: time.Minute}, options{gridSize: grid, stepCount: steps, checkpointInterval: steps, output: io.Discard})
		if !strings.Contains(out, fmt.Sprintf("ok: checksum %016x, ", want.checksum)) || !strings.Contains(out, " 0 changes, 1 recoveries, 2 ranks at the end") {
			t.Errorf("%s\nwant the checksum of\n%v", out, want)
		}
		return
	}
	t.Fatalf("not killed within %d steps", longest)
}

// envWaits names the processes, separated by commas, that wait before they ask for the group of a changed set, or die there.
const envWaits = "SHALLOW_TEST_WAITS"

// holderDies is the program of a rank. Rank 0 adds a process, and dies after the integration.
func holderDies() error {
	o := small
	o.output = os.Stdout
	o.disturb = func(ctx context.Context, m *member, at point) {
		rank := os.Getenv("PMIX_RANK")
		if m.comm == nil {
			rank = "added"
		}
		switch at {
		case pointDecide:
			if m.savedState.atStep == 14 && m.comm.Rank() == 0 && m.comm.Size() == 3 && m.changeCount == 0 {
				if _, err := m.session.PsetOp(ctx, mpi.PsetGrow, []string{m.mainPset}, mpi.PsetArgs{Add: 1}); err != nil {
					endWith(err)
				}
			}
		case pointAdopt:
			if slices.Contains(strings.Split(os.Getenv(envWaits), ","), rank) {
				time.Sleep(time.Second)
			}
			if rank == "0" {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	}
	return run(context.Background(), o)
}

// endWith ends the program with the status of an error.
func endWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "shallow:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestShallow_HolderOfSetsDiesAfterIntegration_SameChecksum kills rank 0 while the others ask for the group of the new main set.
func TestShallow_HolderOfSetsDiesAfterIntegration_SameChecksum(t *testing.T) {
	mpirun := needs.Program(t, "mpirun.openmpi", "openmpi-bin")
	for _, waits := range []string{"", "1", "2,added", "0", "0,added"} {
		t.Run("waits="+waits, func(t *testing.T) {
			t.Setenv(envWaits, waits)
			t.Setenv("FERRY_BOOTSTRAP_TIMEOUT", "5s") // Of the wait for an added process that left.
			out := startUnder(t, mpirun, "shallowHolderDies").wait(t)
			needOneJob(t, out)
			t.Log(out)
			if !strings.Contains(out, fmt.Sprintf("ok: checksum %016x, ", uint64(smallSum))) {
				t.Errorf("%s\nwant the checksum %016x", out, uint64(smallSum))
			}
		})
	}
}

// mpirunJob is the example on three ranks of mpirun.
type mpirunJob struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	dir    string
	out    *bufio.Reader
	stderr bytes.Buffer
}

// startUnder starts a program of this file.
func startUnder(t *testing.T, mpirun, program string, args ...string) *mpirunJob {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	j := &mpirunJob{cancel: cancel, dir: t.TempDir()}
	j.cmd = exec.CommandContext(ctx, mpirun, append([]string{"--oversubscribe", "--enable-recovery", "-n", "3", program}, args...)...)
	j.cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "FERRY_CONFIG="+os.DevNull, "FERRY_BTL_SHM_DIR="+j.dir)
	j.cmd.Stderr = &j.stderr
	j.cmd.Cancel = func() error { return j.cmd.Process.Signal(syscall.SIGTERM) } // It ends its ranks.
	pipe, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.out = bufio.NewReader(io.LimitReader(pipe, 4<<10))
	return j
}

// wait returns the rest of the output. The job must succeed.
func (j *mpirunJob) wait(t *testing.T) string {
	t.Helper()
	text, _ := io.ReadAll(j.out)
	if len(text) > 2<<10 {
		j.cancel() // It makes no progress.
	}
	if err := j.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, text, &j.stderr)
	}
	return string(text)
}

// needOneJob skips the test if the ranks of mpirun have not found each other.
func needOneJob(t *testing.T, out string) {
	t.Helper()
	if strings.HasPrefix(out, "step 0: 1 ranks") {
		needs.Missing(t, "mpirun's ranks are not one job: install libpmix2, and build with cgo")
	}
}

// runAndKill runs the example, and kills rank 0 after the first line. It returns the output.
func runAndKill(t *testing.T, mpirun string, args ...string) (out string, isKilled bool) {
	t.Helper()
	j := startUnder(t, mpirun, "shallow", args...)
	line, _ := j.out.ReadString('\n')
	isKilled = ferrytest.KillProcess("PMIX_RANK=0", "FERRY_BTL_SHM_DIR="+j.dir)
	return line + j.wait(t), isKilled
}
