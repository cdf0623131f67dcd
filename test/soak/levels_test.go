package soak

import (
	"maps"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// envRootsFrom is the environment of jobs on two nodes that create communicators in levels.
const envRootsFrom = "FERRY_BOOTSTRAP_ROOTS_FROM=0"

// nodesOf returns the number of nodes of a job with an environment.
func nodesOf(env []string) int {
	if slices.Contains(env, envRootsFrom) {
		return 2
	}
	return 0
}

// inLevels runs a test over each stack between two nodes, with communicators that are created in
// levels.
func inLevels(t *testing.T, test func(t *testing.T, env []string)) {
	needs.Time(t)
	stacks := map[string][]string{"ob1+shm+tcp": nil}
	if *full {
		stacks["cm+tcp;ofi_rxm"] = overNetwork(t)
	}
	for _, name := range slices.Sorted(maps.Keys(stacks)) {
		t.Run(name, func(t *testing.T) { test(t, append(stacks[name], envRootsFrom)) })
	}
}

func TestCycles_InLevels_LeaveNothing(t *testing.T) {
	inLevels(t, func(t *testing.T, env []string) { run(t, 2, "cycles", size(300, 110), env...) })
}

func TestComms_InLevels_LeaveNothing(t *testing.T) {
	inLevels(t, func(t *testing.T, env []string) { run(t, 2, "comms", size(40_000, 500), env...) })
}

func TestKill_InLevels_OthersContinue(t *testing.T) {
	inLevels(t, func(t *testing.T, env []string) { killRepeatedly(t, size(50, 2), env...) })
}

func TestKillDuringSplit_InLevels_OthersContinue(t *testing.T) {
	inLevels(t, func(t *testing.T, env []string) { killDuringSplit(t, size(40, 2), env) })
}

// TestReuse_InLevels_NoMessageIsMisplaced is TestReuse between two nodes. Its faults are those of a
// BTL.
func TestReuse_InLevels_NoMessageIsMisplaced(t *testing.T) {
	needs.Time(t)
	for _, policy := range []string{"agree", "lazy"} {
		t.Run(policy, func(t *testing.T) { run(t, 2, "reuse", 3000, envRootsFrom, "FERRY_CID_POLICY="+policy) })
	}
}
