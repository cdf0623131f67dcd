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

// envMark is a variable by which all processes of a job are found.
const envMark = "SOAK_MARK"

// marked is a job of two shells under `ferry run`.
func marked(ctx context.Context, t *testing.T, script, program string, env ...string) (cmd *exec.Cmd, mark string) {
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

// alive returns the processes with a mark, those aside that have ended and are not reaped.
func alive(mark string) (all []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		b, _ := os.ReadFile(path) // nothing of one that has ended
		if bytes.Contains(b, []byte(mark)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			all = append(all, fmt.Sprintf("%s %q", filepath.Base(filepath.Dir(path)), bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return all
}

// TestOrphansOfAJobThatEnds: a rank that leaves processes behind in sessions of their own
// leaves nobody when the job has ended.
func TestOrphansOfAJobThatEnds(t *testing.T) {
	for i := range size(20, 2) {
		cmd, mark := marked(t.Context(), t, `setsid sleep 1000 & setsid sh -c "sleep 1000 & sleep 1000 &"; exec "$0"`, "quick")
		if err := cmd.Run(); err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		if left := alive(mark); len(left) > 0 {
			t.Fatalf("job %d has left %v", i, left)
		}
	}
}

// TestOrphansOfAKilledLauncher: ranks that a shell has started don't die with the launcher,
// as the shell does; they end because they hear that it is gone.
func TestOrphansOfAKilledLauncher(t *testing.T) {
	var worst time.Duration
	n := size(20, 1)
	for i := range n {
		begun := filepath.Join(t.TempDir(), "begun")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd, mark := marked(ctx, t, `"$0"; true`, "orphan",
			envLost+"="+begun, fmt.Sprint("FERRY_BOOTSTRAP_TIMEOUT=", lossTimeout), "FERRY_BOOTSTRAP_ON_LOSS=end")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(ctx, t, func() bool { return exists(begun) })
		time.Sleep(time.Duration(randv2.IntN(30_000)) * time.Microsecond)
		killed := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if left := alive(mark); len(left) < 2 {
			t.Errorf("kill %d: only %v lived on: this shows nothing", i, left)
		}
		await(ctx, t, func() bool { return len(alive(mark)) == 0 })
		took := time.Since(killed)
		worst = max(worst, took)
		if took > lossTimeout+prompt {
			t.Errorf("kill %d: ranks lived for %v", i, took)
		}
		_ = cmd.Wait() // its output
		cancel()
	}
	t.Logf("%d launchers killed: no rank is left after %v", n, worst)
}
