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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/internal/needs"
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

// runAndKill runs the example on three ranks of mpirun, and kills rank 0 after the first line. It returns the rest of the output.
func runAndKill(t *testing.T, mpirun string, args ...string) (rest string, isKilled bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir, errors := t.TempDir(), new(bytes.Buffer)
	cmd := exec.CommandContext(ctx, mpirun, append([]string{"--oversubscribe", "--enable-recovery", "-n", "3", "shallow"}, args...)...)
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "FERRY_CONFIG="+os.DevNull, "FERRY_BTL_SHM_DIR="+dir)
	cmd.Stderr = errors
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // It ends its ranks.
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(io.LimitReader(pipe, 4<<10))
	line, _ := out.ReadString('\n')
	isKilled = ferrytest.KillProcess("PMIX_RANK=0", "FERRY_BTL_SHM_DIR="+dir)
	text, _ := io.ReadAll(out)
	if len(text) > 2<<10 {
		cancel() // It makes no progress.
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s%s%s", err, line, text, errors)
	}
	if strings.HasPrefix(line, "step 0: 1 ranks") {
		needs.Missing(t, "mpirun's ranks are not one job: install libpmix2, and build with cgo")
	}
	return string(text), isKilled
}
