package assembly

import (
	"cmp"
	"fmt"
	"slices"
)

// UnusedProcs counts the processes of a node that a process has not used.
type UnusedProcs struct {
	// FromRank is the rank of the process that has not used them, and LowestRank the lowest rank of them.
	FromRank     int `json:"from"`
	LowestRank   int `json:"lowest"`
	ProcessCount int `json:"processes"`
}

// String returns one line of text.
func (u UnusedProcs) String() string {
	return fmt.Sprintf("%d -> %d processes of the node of rank %d: not used", u.FromRank, u.ProcessCount, u.LowestRank)
}

// CommTable is the table of the members of communicators that were created in levels.
type CommTable struct {
	MemberCount int `json:"members"`
	TableBytes  int `json:"bytes"`
	// IsShared reports whether the processes of the node share the memory. Otherwise each process has its own copy, because there was no shared
	// memory or no room in it.
	IsShared bool `json:"shared"`
}

// String returns one line of text.
func (t CommTable) String() string {
	where := "in shared memory of the node"
	if !t.IsShared {
		where = "in the memory of each process, because there was no shared memory for it"
	}
	return fmt.Sprintf("table of %d members: %d bytes %s", t.MemberCount, t.TableBytes, where)
}

// explainTables returns the processes without a record, by node, and the tables, the oldest one first.
func (a *Assembly) explainTables() (unused []UnusedProcs, tables []CommTable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	byNode := map[string]*UnusedProcs{}
	for incarnation := range a.peers.tableOnlyIncarnations() {
		if _, hasEnded := a.droppedRoutes.pairByPeer[incarnation]; hasEnded || incarnation == a.env.Self {
			continue
		}
		known, _ := a.peers.get(incarnation)
		u := byNode[known.nodeID]
		if u == nil {
			u = &UnusedProcs{FromRank: int(a.env.Identity.Proc.Rank), LowestRank: int(incarnation.ID.Rank())}
			byNode[known.nodeID] = u
		}
		u.ProcessCount, u.LowestRank = u.ProcessCount+1, min(u.LowestRank, int(incarnation.ID.Rank()))
	}
	for _, u := range byNode {
		unused = append(unused, *u)
	}
	slices.SortFunc(unused, func(x, y UnusedProcs) int { return cmp.Compare(x.LowestRank, y.LowestRank) })
	for n := range a.peers.liveTables.all() {
		tables = append(tables, CommTable{MemberCount: n.Len(), TableBytes: len(n.offHeapTable.Bytes()), IsShared: n.isShared})
	}
	slices.Reverse(tables)
	return unused, tables
}
