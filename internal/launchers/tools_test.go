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

// The commands of ferry that may be ranks. TestConform has the one that is a test itself.

// TestBenchTakesTheRanksThatThereAre: it starts none of its own, and rank 0 prints.
func TestBenchTakesTheRanksThatThereAre(t *testing.T) {
	wired(t, func(t *testing.T, l *Started) {
		res := l.ToTheEnd(t, Job{Size: 2, Program: Ferry, Args: []string{"bench", "latency", "-m", "8:8", "-i", "20", "-x", "2", "--format", "csv"}})
		if n := strings.Count(res.Ranks[0].Output, "latency,8,2,us,"); n != 1 || res.Ranks[1].Output != "" {
			t.Errorf("%d rows\n%v", n, res)
		}
		res = l.ToTheEnd(t, Job{Size: 3, Program: Ferry, Args: []string{"bench", "allreduce", "-m", "8:8", "-i", "20", "-x", "2", "--format", "csv"}})
		if !strings.Contains(res.Ranks[0].Output, "allreduce,8,3,us,") {
			t.Error(res)
		}
	})
}

// TestMatrixTakesTheRanksThatThereAre: one report of all ranks, in which nothing fails.
// The launcher is spoken to once, however many stacks are opened and closed.
func TestMatrixTakesTheRanksThatThereAre(t *testing.T) {
	needs.Time(t)
	wired(t, func(t *testing.T, l *Started) {
		report := filepath.Join(t.TempDir(), "report")
		args := []string{"matrix", "--job", "--suite", "quick", "--junit", report}
		if !*full {
			stacks := "ob1+*"
			if _, err := libfabric.Load(testprov.System()); err == nil {
				stacks += ",cm+ofi tcp;ofi_rxm"
			}
			args = append(args, "--components", stacks, "--cases", "^(conform/[0-9]+/(session|communicator)|bench/.*latency)")
		}
		res := l.ToTheEnd(t, Job{Size: 4, Program: Ferry, Args: args, Timeout: 4 * time.Minute})
		if !strings.Contains(res.Ranks[0].Output, "one job of 4 ranks on 1 node") || !strings.Contains(res.Ranks[0].Output, "Passed: ") {
			t.Error(res)
		}
		for i, rank := range res.Ranks[1:] {
			if rank.Output != "" {
				t.Errorf("rank %d says %s", i+1, rank.Output)
			}
		}
		if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), `failures="0"`) {
			t.Errorf("the report: %v\n%s", err, text)
		}
	})
}

// TestCommandsThatStartRanksAreNone: as ranks each would start a job of its own, all of them
// on the same processors.
func TestCommandsThatStartRanksAreNone(t *testing.T) {
	wired(t, func(t *testing.T, l *Started) {
		for _, args := range [][]string{{"matrix"}, {"bench", "init"}, {"bench", "hello"}} {
			refused(t, l, args, "without a launcher")
		}
	})
	t.Run("no way to meet", func(t *testing.T) {
		l := SlurmNone.Start(t)
		for _, args := range [][]string{{"matrix"}, {"matrix", "--job"}, {"bench", "latency"}, {"conform"}} {
			refused(t, l, args, byItself)
		}
	})
}

// refused wants a job of the command ferry to end with an error that has text.
func refused(t *testing.T, l *Started, args []string, text string) {
	t.Helper()
	res := l.Begin(t, Job{Size: 2, Program: Ferry, Args: args}).Wait()
	// A launcher may end one rank because of the other.
	said := res.Ranks[0].Output + res.Ranks[1].Output
	if res.Launcher == nil || !strings.Contains(said, text) || strings.Contains(said, "panic") {
		t.Errorf("%v: want an error with %q\n%v", args, text, res)
	}
}

// TestToolByItselfStartsItsRanks: the user's word is about the process, and not about what
// it starts.
func TestToolByItselfStartsItsRanks(t *testing.T) {
	l := SlurmNone.Start(t)
	res := l.ToTheEnd(t, Job{Size: 2, Program: Ferry, Env: []string{byItself}, Args: []string{"bench", "latency", "-m", "8:8", "-i", "20", "-x", "2", "--format", "csv"}})
	for i, rank := range res.Ranks {
		if !strings.Contains(rank.Output, "latency,8,2,us,") {
			t.Errorf("rank %d\n%v", i, res)
		}
	}
}
