package server

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestNodes_FirstRanks_AreBlocks(t *testing.T) {
	for _, c := range []struct {
		ranks, nodes int
		want         string
	}{
		{4, 0, "[{0 4 0}]"}, {4, 1, "[{0 4 0}]"}, {4, 2, "[{0 2 0} {2 2 1}]"}, {5, 2, "[{0 3 0} {3 2 1}]"},
		{8, 3, "[{0 3 0} {3 3 1} {6 2 2}]"}, {3, 3, "[{0 1 0} {1 1 1} {2 1 2}]"},
	} {
		s, err := New(Options{Size: c.ranks, Nodes: c.nodes})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.nodeMapLocked(0, c.ranks)); got != c.want || s.isDivided() != (c.nodes > 1) {
			t.Errorf("%d ranks on %d nodes: %s, divided %v, want %s", c.ranks, c.nodes, got, s.isDivided(), c.want)
		}
		s.Close()
	}
	for _, nodes := range []int{-1, 5} {
		if _, err := New(Options{Size: 4, Nodes: nodes}); !errors.Is(err, framework.ErrConfig) {
			t.Errorf("%d nodes for 4 ranks: %v", nodes, err)
		}
	}
}

// TestNodes_AddedRanks_GoWhereFewestProcessesAre adds ranks before and after two processes of node 1 have ended.
func TestNodes_AddedRanks_GoWhereFewestProcessesAre(t *testing.T) {
	s, err := New(Options{Size: 5, Nodes: 2, MaxProcs: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	add := func(first, n int, want string) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.addProcs(first, n)
		if got := fmt.Sprint(s.nodeMapLocked(first, n)); got != want {
			t.Errorf("ranks %d to %d are on %s, want %s", first, first+n-1, got, want)
		}
	}
	add(5, 3, "[{5 1 1} {6 1 0} {7 1 1}]") // 4 and 4 processes.
	s.ProcExited(3, "exit status 1")
	s.ProcExited(5, "exit status 1")
	add(8, 3, "[{8 2 1} {10 1 0}]")
}
