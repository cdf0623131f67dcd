package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, map[string]func(){"forever": forever}) }

// forever says that it is there and waits to be killed; one that nobody kills
// ends by itself before it is a nuisance.
func forever() {
	fmt.Println("pid", os.Getpid())
	time.Sleep(10 * time.Minute)
}

func TestCommands(t *testing.T) { clitest.Run(t) }

// A launcher that is interrupted, or killed outright, must not leave ranks.
func TestNoOrphansWhenTheLauncherIsStopped(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		path, err := exec.LookPath("ferry")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		cmd := exec.Command(path, "run", "-n", "3", "forever")
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pids []int
		for range 3 {
			var pid int
			if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		for _, pid := range pids {
			deadline := time.Now().Add(20 * time.Second)
			for alive(pid) {
				if time.Now().After(deadline) {
					t.Fatalf("%v: rank %d outlives its launcher", sig, pid)
				}
			}
		}
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if sig != syscall.SIGKILL && len(left) > 0 {
			t.Errorf("%v: left behind: %v", sig, left)
		}
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !regexp.MustCompile(`\) [ZX] `).Match(b)
}
