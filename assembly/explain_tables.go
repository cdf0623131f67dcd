package assembly

import (
	"cmp"
	"fmt"
	"slices"
)

// UnusedProcs counts the processes of a node that a process has not used.
type UnusedProcs struct {
	// From is the rank of the process that has not used them, and Lowest the lowest rank of them.
	From      int `json:"from"`
	Lowest    int `json:"lowest"`
	Processes int `json:"processes"`
}

// String returns one line of text.
func (u UnusedProcs) String() string {
	return fmt.Sprintf("%d -> %d processes of the node of rank %d: not used", u.From, u.Processes, u.Lowest)
}

// CommTable is the table of the members of communicators that were created in levels.
type CommTable struct {
	Members int `json:"members"`
	Bytes   int `json:"bytes"`
	// Shared reports whether the processes of the node share the memory. Otherwise each process has its own copy, because there was no shared
	// memory or no room in it.
	Shared bool `json:"shared"`
}

// String returns one line of text.
func (t CommTable) String() string {
	where := "in shared memory of the node"
	if !t.Shared {
		where = "in the memory of each process, because there was no shared memory for it"
	}
	return fmt.Sprintf("table of %d members: %d bytes %s", t.Members, t.Bytes, where)
}

// explainTables returns the processes without a record, by node, and the tables, the oldest one first.
func (a *Assembly) explainTables() (unused []UnusedProcs, tables []CommTable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	byNode := map[string]*UnusedProcs{}
	for incarnation := range a.peers.tableOnlyIncarnations() {
		if _, hasEnded := a.droppedRoutes.pairs[incarnation]; hasEnded || incarnation == a.env.Self {
			continue
		}
		known, _ := a.peers.get(incarnation)
		u := byNode[known.node]
		if u == nil {
			u = &UnusedProcs{From: int(a.env.Identity.Proc.Rank), Lowest: int(incarnation.ID.Rank())}
			byNode[known.node] = u
		}
		u.Processes, u.Lowest = u.Processes+1, min(u.Lowest, int(incarnation.ID.Rank()))
	}
	for _, u := range byNode {
		unused = append(unused, *u)
	}
	slices.SortFunc(unused, func(x, y UnusedProcs) int { return cmp.Compare(x.Lowest, y.Lowest) })
	for n := range a.peers.tables.all() {
		tables = append(tables, CommTable{Members: n.Len(), Bytes: len(n.table.Bytes()), Shared: n.isShared})
	}
	slices.Reverse(tables)
	return unused, tables
}
