package launchers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Close leaves no daemons, steps, tasks, files or control groups.
func TestSlurm_Close_LeavesNothing(t *testing.T) {
	l := SlurmPMIx
	if err := l.missing(); err != nil {
		l.Start(t) // Skips the test.
	}
	s, err := startSlurm()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", s.startupTimes)
	cmd := exec.Command("srun", "--mpi=pmix", "-n", "2", "sh", "-c", "setsid sleep 1000 & sleep 1000")
	if _, err := s.begin(cmd); err != nil {
		t.Fatal(err)
	}
	// The processes are munged, slurmctld and its child, slurmd, slurmstepd, srun and its child,
	// two shells and four sleeps.
	const all = 13
	for deadline := time.Now().Add(endTimeout); len(markedProcesses(s.mark())) < all; time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatalf("want %d processes, got %q", all, describe(markedProcesses(s.mark())))
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := markedProcesses(s.mark()); len(left) > 0 {
		t.Errorf("left: %v", describe(left))
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Errorf("%s still exists", s.dir)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*slurm*", "/sys/fs/cgroup/*/*slurm*", "/dev/shm/*slurm*", "/dev/shm/*pmix*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
