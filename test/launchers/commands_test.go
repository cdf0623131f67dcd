package launchers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/internal/needs"
)

// The commands of ferry that may run as ranks. TestConform has ferry conform.

// The command starts no ranks, and rank 0 prints.
func TestBench_UnderLauncher_UsesItsRanks(t *testing.T) {
	eachConnected(t, func(t *testing.T, l *Started) {
		res := l.RunToEnd(t, Job{Size: 2, Program: Ferry, ProgramArgs: []string{"bench", "latency", "-m", "8:8", "-i", "20", "-x", "2", "--format", "csv"}})
		if n := strings.Count(res.Ranks[0].Output, "latency,8,2,us,"); n != 1 || res.Ranks[1].Output != "" {
			t.Errorf("%d rows\n%v", n, res)
		}
		res = l.RunToEnd(t, Job{Size: 3, Program: Ferry, ProgramArgs: []string{"bench", "allreduce", "-m", "8:8", "-i", "20", "-x", "2", "--format", "csv"}})
		if !strings.Contains(res.Ranks[0].Output, "allreduce,8,3,us,") {
			t.Error(res)
		}
	})
}

// The command prints one report of all ranks without failures. It uses one bootstrap for all
// stacks.
func TestMatrix_UnderLauncher_UsesItsRanks(t *testing.T) {
	needs.Time(t)
	eachConnected(t, func(t *testing.T, l *Started) {
		report := filepath.Join(t.TempDir(), "report")
		args := []string{"matrix", "--job", "--suite", "quick", "--junit", report}
		if !*full {
			stacks := "ob1+*"
			if _, err := libfabric.Load(testprov.System()); err == nil {
				stacks += ",cm+ofi tcp;ofi_rxm"
			}
			args = append(args, "--components", stacks, "--cases", "^(conform/[0-9]+/(session|communicator)|bench/.*latency)")
		}
		res := l.RunToEnd(t, Job{Size: 4, Program: Ferry, ProgramArgs: args, Timeout: 4 * time.Minute})
		if !strings.Contains(res.Ranks[0].Output, "one job of 4 ranks on 1 node") || !strings.Contains(res.Ranks[0].Output, "Passed: ") {
			t.Error(res)
		}
		for i, rank := range res.Ranks[1:] {
			if rank.Output != "" {
				t.Errorf("rank %d printed %s", i+1, rank.Output)
			}
		}
		if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), `failures="0"`) {
			t.Errorf("the report: %v\n%s", err, text)
		}
	})
}

// As ranks, each of these commands would start a job on the same processors.
func TestCommand_StartsRanks_IsRefusedAsRank(t *testing.T) {
	eachConnected(t, func(t *testing.T, l *Started) {
		for _, args := range [][]string{{"matrix"}, {"bench", "init"}, {"bench", "hello"}} {
			expectError(t, l, args, "without a launcher")
		}
	})
	t.Run("no way to meet", func(t *testing.T) {
		l := SlurmNone.Start(t)
		for _, args := range [][]string{{"matrix"}, {"matrix", "--job"}, {"bench", "latency"}, {"conform"}} {
			expectError(t, l, args, allowSingleton)
		}
	})
}

// expectError checks that a job of the command ferry ends with an error that contains text.
func expectError(t *testing.T, l *Started, args []string, text string) {
	t.Helper()
	res := l.Begin(t, Job{Size: 2, Program: Ferry, ProgramArgs: args}).Wait()
	// A launcher may end one rank because of the other.
	said := res.Ranks[0].Output + res.Ranks[1].Output
	if res.LauncherErr == nil || !strings.Contains(said, text) || strings.Contains(said, "panic") {
		t.Errorf("%v: want an error with %q\n%v", args, text, res)
	}
}

// The user's setting concerns the process, not its children.
func TestBench_SingletonAllowed_StartsRanks(t *testing.T) {
	l := SlurmNone.Start(t)
	res := l.RunToEnd(t, Job{Size: 2, Program: Ferry, ExtraEnv: []string{allowSingleton}, ProgramArgs: []string{"bench", "latency", "-m", "8:8", "-i", "20", "-x", "2", "--format", "csv"}})
	for i, rank := range res.Ranks {
		if !strings.Contains(rank.Output, "latency,8,2,us,") {
			t.Errorf("rank %d\n%v", i, res)
		}
	}
}
