package soak

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// envMark is a variable that identifies all processes of a job.
const envMark = "SOAK_MARK"

// startMarkedJob is a job of two shells under `ferry run`.
func startMarkedJob(ctx context.Context, t *testing.T, script, program string, env ...string) (cmd *exec.Cmd, mark string) {
	mark = envMark + "=" + rand.Text()
	cmd = exec.CommandContext(ctx, os.Args[0], "run", "-n", "2", "-x", envFerry+"=0", "sh", "-c", script, os.Args[0])
	cmd.Env = append(append(os.Environ(), mark, envFerry+"=1", "XDG_RUNTIME_DIR="+t.TempDir(), "FERRY_BTL_SHM_DIR="+segments(t),
		"LOCALTEST_PROGRAM="+program, "LOCALTEST_TIMEOUT=1m"), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", out.String())
		}
	})
	return cmd, mark
}

// markedProcesses returns the processes with a mark, without zombies.
func markedProcesses(mark string) (all []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		b, _ := os.ReadFile(path) // An ended process has no environment.
		if bytes.Contains(b, []byte(mark)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			all = append(all, fmt.Sprintf("%s %q", filepath.Base(filepath.Dir(path)), bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return all
}

// A rank leaves processes in sessions of their own. They end with the job.
func TestOrphans_JobEnds_AreKilled(t *testing.T) {
	for i := range size(20, 2) {
		cmd, mark := startMarkedJob(t.Context(), t, `setsid sleep 1000 & setsid sh -c "sleep 1000 & sleep 1000 &"; exec "$0"`, "quick")
		if err := cmd.Run(); err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		if left := markedProcesses(mark); len(left) > 0 {
			t.Fatalf("job %d left %v", i, left)
		}
	}
}

// Ranks that a shell has started do not die with the launcher as the shell does. They end because
// they notice its death.
func TestOrphans_LauncherKilled_End(t *testing.T) {
	var worst time.Duration
	n := size(20, 1)
	for i := range n {
		begun := filepath.Join(t.TempDir(), "begun")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd, mark := startMarkedJob(ctx, t, `"$0"; true`, "orphan",
			envLost+"="+begun, fmt.Sprint("FERRY_BOOTSTRAP_TIMEOUT=", lossTimeout), "FERRY_BOOTSTRAP_ON_LOSS=end")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitCondition(ctx, t, func() bool { return exists(begun) })
		time.Sleep(time.Duration(randv2.IntN(30_000)) * time.Microsecond)
		killed := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if left := markedProcesses(mark); len(left) < 2 {
			t.Errorf("kill %d: only %v survived the launcher: the test is inconclusive", i, left)
		}
		awaitCondition(ctx, t, func() bool { return len(markedProcesses(mark)) == 0 })
		took := time.Since(killed)
		worst = max(worst, took)
		if took > lossTimeout+promptLimit {
			t.Errorf("kill %d: ranks survived for %v", i, took)
		}
		_ = cmd.Wait() // Returns the rest of its output.
		cancel()
	}
	t.Logf("%d launchers killed: no rank is left after %v", n, worst)
}
