// Package soak has long-running programs that check resource leaks, hangs after the death of
// processes, and large sizes. Each has its own criterion and prints its measurements.
//
//	go test ./test/soak -v                              reduced sizes, with all other tests
//	go test ./test/soak -v -full -run Cycles            full size
//	go test ./test/soak -v -full -timeout 2h            all programs at full size
package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/mpi"
)

var full = flag.Bool("full", false, "run the programs at their full size")

// Environment of ranks. It has the number of rounds, and whether this process is the command ferry.
const (
	envRounds = "SOAK_ROUNDS"
	envFerry  = "SOAK_FERRY"
)

func TestMain(m *testing.M) {
	if os.Getenv(envFerry) == "1" {
		ferrytest.Ferry()
	}
	extendTimeout()
	localtest.Main(m, map[string]localtest.Program{
		"big":             inWorld(bigRank),
		"busy":            inWorld(busyRank),
		"collective-kill": inWorld(collectiveKillRank),
		"comms":           inWorld(commsRank),
		"cut":             inWorld(cutRank),
		"cycles":          cycleRank,
		"dups":            inWorld(dupRank),
		"elastic":         elasticProgram,
		"dups-barrier":    inWorld(dupsBarrier),
		"flood":           inWorld(floodRank),
		"goroutine-ranks": inWorld(goroutineRanks),
		"goroutines":      inWorld(goroutinesRank),
		"hold":            inWorld(holdRank),
		"keeper":          inWorld(computingPeerRank),
		"kill":            inWorld(killRank),
		"kill-copies":     inWorld(copyKillRank),
		"late-dup":        inWorld(lateDupRank),
		"orphans":         sceneProgram,
		"late-tag":        inWorld(lateTagRank),
		"lost-host":       inWorld(lostHostRank),
		"orphan":          inWorld(orphanRank),
		"quick":           inWorld(barrierRank),
		"reuse":           reuseRank,
		"split":           inWorld(splitRank),
		"storm":           stormRank,
		"streams":         inWorld(streamsRank),
		"survive":         surviveRank,
		"wake":            inWorld(wakeRank),
	})
}

// promptLimit is the limit of operations that must not wait for a timeout of the library, which are a
// minute. An operation of a millisecond may take seconds on a busy machine.
const promptLimit = 20 * time.Second

// size returns the size of a program in this run.
func size(fullSize, small int) int {
	if *full {
		return fullSize
	}
	return small
}

// run runs a program as n ranks and logs their output. Their segments are in a directory of their
// own, in which none may remain.
func run(t *testing.T, n int, program string, rounds int, env ...string) {
	t.Helper()
	dir := segments(t)
	env = append(env, "FERRY_BTL_SHM_DIR="+dir, fmt.Sprint(envRounds, "=", rounds))
	start := time.Now()
	r := localtest.RunJob(t, localtest.Job{Size: n, Nodes: nodesOf(env), Program: program, Timeout: 30 * time.Minute, Env: env})
	for rank, out := range r.Output {
		if out != "" {
			t.Logf("rank %d: %s", rank, strings.TrimSpace(out))
		}
	}
	t.Logf("%s with %d rounds: %v", program, rounds, time.Since(start).Round(time.Millisecond))
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left in %s: %v", dir, left)
	}
}

// segments creates a directory in memory for the segments of a job.
func segments(t *testing.T) string {
	t.Helper()
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = t.TempDir()
	}
	dir, err := os.MkdirTemp(base, "ferry-soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, filepath.Join(dir, e.Name()))
	}
	return names
}

// rounds returns the argument of run.
func rounds() int {
	var n int
	fmt.Sscan(os.Getenv(envRounds), &n)
	return n
}

// inWorld returns a program that runs f with a communicator of all processes.
func inWorld(f func(ctx context.Context, s *mpi.Session, c *mpi.Comm) error) localtest.Program {
	return func(ctx context.Context) error {
		s, err := mpi.OpenSession(ctx)
		if err != nil {
			return err
		}
		c, err := newWorldComm(ctx, s, "soak")
		if err != nil {
			return err
		}
		if err := f(ctx, s, c); err != nil {
			return err
		}
		return errors.Join(c.Close(), s.Close())
	}
}

func newWorldComm(ctx context.Context, s *mpi.Session, tag string) (*mpi.Comm, error) {
	g, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, err
	}
	return mpi.CommFromGroup(ctx, g, tag)
}
