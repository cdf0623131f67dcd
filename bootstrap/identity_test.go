package bootstrap

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestMaxLocal_JobMayGrow_IsALimitForTheNode(t *testing.T) {
	for _, c := range []struct{ local, size, most, want int }{
		{2, 2, 2, 2}, {2, 2, 0, 2}, {2, 2, 8, 8}, {1, 1, 8, 8}, {10, 1000, 1000, 10}, {10, 1000, 1004, 14}, {0, 4, 8, 0},
	} {
		id := Identity{LocalSize: c.local, Size: c.size, MaxSize: c.most}
		if got := id.MaxLocal(); got != c.want {
			t.Errorf("%d of %d processes on the node, at most %d in all: %d, want %d", c.local, c.size, c.most, got, c.want)
		}
	}
}

func TestIdentity_ProcessWasAdded_DoesNotLead(t *testing.T) {
	for _, c := range []struct {
		id   Identity
		want bool
	}{
		{Identity{}, true}, {Identity{LocalRank: 1}, false}, {Identity{FirstRank: 4}, false}, {Identity{FirstRank: 4, LocalRank: 1}, false},
	} {
		if c.id.IsJobReporter() != c.want {
			t.Errorf("%+v leads: %v", c.id, c.id.IsJobReporter())
		}
	}
}

func TestIdentity_MachineIsDivided_SharesTheProcessorsOfAllNodes(t *testing.T) {
	id := Identity{Proc: framework.Proc{Namespace: "job", Rank: 5}, FirstRank: 4, Size: 4, MaxSize: 6}.OnNode(NodeMap{{4, 2, 3}, {6, 2, 1}})
	if !id.IsSpread() || id.MaxOnMachine() != 4 || !slices.Equal(id.MachineRanks(), []uint32{4, 5}) || id.NodeLabel() != "" {
		t.Errorf("two machines: %v, %d, %v, %q", id.IsSpread(), id.MaxOnMachine(), id.MachineRanks(), id.NodeLabel())
	}
	id.IsDivided = true
	if id.IsSpread() || id.MaxOnMachine() != 6 || !slices.Equal(id.MachineRanks(), []uint32{4, 5, 6, 7}) || id.NodeLabel() != "n3" {
		t.Errorf("a divided machine: %v, %d, %v, %q", id.IsSpread(), id.MaxOnMachine(), id.MachineRanks(), id.NodeLabel())
	}
	for _, c := range []struct {
		local int
		want  bool
	}{{0, false}, {1, true}, {4, false}} {
		if id := (Identity{LocalSize: c.local, Size: 4}); id.IsSpread() != c.want {
			t.Errorf("%d of 4 processes on the node: spread is %v", c.local, !c.want)
		}
	}
}
