package launchers

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// spawningPMI1 returns the launchers that add processes by PMI-1. Slurm's steps may overlap.
func spawningPMI1() []Launcher {
	slurm, prepare := SlurmPMI2, SlurmPMI2.prepare
	slurm.prepare = func(t testing.TB) []string { return append(prepare(t), "SLURM_OVERLAP=1") }
	return []Launcher{Hydra, HydraPort, slurm}
}

func buildElastic(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "elastic")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../examples/elastic").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// A job adds and removes processes one by one, and leaves none.
func TestAddedPMI1_TwentyChanges_JobEndsInOrder(t *testing.T) {
	example := buildElastic(t)
	Each(t, spawningPMI1(), func(t *testing.T, l *Started) {
		r := l.Begin(t, Job{Size: 2, Program: example, Args: []string{"-to", "4", "-rounds", "20"}})
		res := r.Wait()
		if res.Launcher != nil || !strings.HasPrefix(res.Ranks[0].Output, "ok: 21 rounds and 20 changes, ") {
			t.Fatal(res)
		}
		t.Logf("%s in %v", strings.TrimSpace(res.Ranks[0].Output), res.Time)
		if left := r.AwaitEnd(endTimeout); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Rank 0 requests more processes than the job may have, and ends. The added processes end as well.
func TestAddedPMI1_Rank0Ends_AddedProcessesEnd(t *testing.T) {
	example := buildElastic(t)
	Each(t, []Launcher{Hydra}, func(t *testing.T, l *Started) {
		r := l.Begin(t, Job{Size: 1, Program: example, Args: []string{"-to", "6"}})
		res := r.Wait()
		if res.Launcher == nil || strings.Contains(res.Launcher.Error(), "killed after") || !strings.Contains(res.Ranks[0].Output, "bootstrap.max_ranks") {
			t.Fatal(res)
		}
		if left := r.AwaitEnd(endTimeout); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
