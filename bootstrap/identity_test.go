package bootstrap

import "testing"

func TestIdentity_JobMayGrow_MostLocalIsALimitForTheNode(t *testing.T) {
	for _, c := range []struct{ local, size, most, want int }{
		{2, 2, 2, 2}, {2, 2, 0, 2}, {2, 2, 8, 8}, {1, 1, 8, 8}, {10, 1000, 1000, 10}, {10, 1000, 1004, 14}, {0, 4, 8, 0},
	} {
		id := Identity{LocalSize: c.local, Size: c.size, Most: c.most}
		if got := id.MostLocal(); got != c.want {
			t.Errorf("%d of %d processes on the node, at most %d in all: %d, want %d", c.local, c.size, c.most, got, c.want)
		}
	}
}

func TestIdentity_ProcessWasAdded_DoesNotLead(t *testing.T) {
	for _, c := range []struct {
		id   Identity
		want bool
	}{
		{Identity{}, true}, {Identity{LocalRank: 1}, false}, {Identity{First: 4}, false}, {Identity{First: 4, LocalRank: 1}, false},
	} {
		if c.id.Leads() != c.want {
			t.Errorf("%+v leads: %v", c.id, c.id.Leads())
		}
	}
}
