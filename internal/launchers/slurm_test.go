package launchers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestSlurmLeavesNothing: neither daemons, nor steps, nor tasks, nor files, nor control
// groups.
func TestSlurmLeavesNothing(t *testing.T) {
	l := SlurmPMIx
	if err := l.missing(); err != nil {
		l.Start(t) // skips
	}
	s, err := startSlurm()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", s.took)
	cmd := exec.Command("srun", "--mpi=pmix", "-n", "2", "sh", "-c", "setsid sleep 1000 & sleep 1000")
	if _, err := s.begin(cmd); err != nil {
		t.Fatal(err)
	}
	// munged, slurmctld and its child, slurmd, slurmstepd, srun and its child, two shells
	// and four sleeps.
	const all = 13
	for deadline := time.Now().Add(prompt); len(marked(s.mark())) < all; time.Sleep(step) {
		if time.Now().After(deadline) {
			t.Fatalf("these are not %d: %q", all, describe(marked(s.mark())))
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := marked(s.mark()); len(left) > 0 {
		t.Errorf("left: %v", describe(left))
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Errorf("%s is still there", s.dir)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*slurm*", "/sys/fs/cgroup/*/*slurm*", "/dev/shm/*slurm*", "/dev/shm/*pmix*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
