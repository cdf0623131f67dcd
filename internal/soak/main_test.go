// Package soak holds the programs by which the promises of a whole run are
// measured: that nothing grows, that nothing hangs when processes die, that
// large is only large. Each asserts its own criterion and prints its figures.
//
//	go test ./internal/soak -v                              small, with all other tests
//	go test ./internal/soak -v -full -run Cycles            as large as it is meant to be
//	go test ./internal/soak -v -full -timeout 2h            all of them
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

// The environment of ranks: the number of rounds, and whether this process is
// the command ferry.
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
		"big":             inWorld(big),
		"busy":            inWorld(busy),
		"collective-kill": inWorld(collectiveVictim),
		"comms":           inWorld(comms),
		"cut":             inWorld(cut),
		"cycles":          cycles,
		"dups":            inWorld(dups),
		"elastic":         elastic,
		"dups-barrier":    inWorld(dupsBarrier),
		"flood":           inWorld(flood),
		"goroutine-ranks": inWorld(goroutineRanks),
		"goroutines":      inWorld(goroutines),
		"hold":            inWorld(hold),
		"keeper":          inWorld(keeper),
		"kill":            inWorld(victim),
		"kill-copies":     inWorld(copyVictim),
		"late-dup":        inWorld(lateDup),
		"orphans":         orphans,
		"late-tag":        inWorld(lateTag),
		"lost-host":       inWorld(lostHost),
		"orphan":          inWorld(orphan),
		"quick":           inWorld(quick),
		"reuse":           reuse,
		"split":           inWorld(splits),
		"storm":           stormRank,
		"streams":         inWorld(streams),
		"survive":         survive,
		"wake":            inWorld(wake),
	})
}

// prompt is what takes longer than that waits for something that does not come: the
// library's own waits for others are of a minute. A busy machine needs seconds for what
// takes a millisecond elsewhere.
const prompt = 20 * time.Second

// size returns the size of a program in this run.
func size(fullSize, small int) int {
	if *full {
		return fullSize
	}
	return small
}

// run runs a program as n ranks with segments in a directory of its own, in
// which nothing may be left, and logs what the ranks print.
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

// segments makes a directory in memory for one job's segments.
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

// rounds is what run was told.
func rounds() int {
	var n int
	fmt.Sscan(os.Getenv(envRounds), &n)
	return n
}

// inWorld runs f with a communicator of all processes.
func inWorld(f func(ctx context.Context, s *mpi.Session, c *mpi.Comm) error) localtest.Program {
	return func(ctx context.Context) error {
		s, err := mpi.OpenSession(ctx)
		if err != nil {
			return err
		}
		c, err := world(ctx, s, "soak")
		if err != nil {
			return err
		}
		if err := f(ctx, s, c); err != nil {
			return err
		}
		return errors.Join(c.Close(), s.Close())
	}
}

func world(ctx context.Context, s *mpi.Session, tag string) (*mpi.Comm, error) {
	g, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, err
	}
	return mpi.CommFromGroup(ctx, g, tag)
}
