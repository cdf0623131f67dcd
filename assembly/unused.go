package assembly

import (
	"cmp"
	"fmt"
	"slices"
)

// UnusedProcs counts the processes of a node that a process has not used.
type UnusedProcs struct {
	From      int `json:"from"`   // Rank of the process that has not used them.
	Lowest    int `json:"lowest"` // Lowest rank of them.
	Processes int `json:"processes"`
}

// String is a line for people.
func (u UnusedProcs) String() string {
	return fmt.Sprintf("%d -> %d processes of the node of rank %d: not used", u.From, u.Processes, u.Lowest)
}

// CommTable is the table of the members of communicators that were created in levels.
type CommTable struct {
	Members int `json:"members"`
	Bytes   int `json:"bytes"`
	// Shared reports whether the processes of the node share the memory. Otherwise there was no shared memory, or no
	// room in it, and each process has its own copy.
	Shared bool `json:"shared"`
}

// String is a line for people.
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
	for life := range a.known.lists() {
		if _, hasEnded := a.past.pairs[life]; hasEnded || life == a.env.Self {
			continue
		}
		known, _ := a.known.get(life)
		u := byNode[known.node]
		if u == nil {
			u = &UnusedProcs{From: int(a.env.Identity.Proc.Rank), Lowest: int(life.ID.Rank())}
			byNode[known.node] = u
		}
		u.Processes, u.Lowest = u.Processes+1, min(u.Lowest, int(life.ID.Rank()))
	}
	for _, u := range byNode {
		unused = append(unused, *u)
	}
	slices.SortFunc(unused, func(x, y UnusedProcs) int { return cmp.Compare(x.Lowest, y.Lowest) })
	for n := range a.known.tables.all() {
		tables = append(tables, CommTable{Members: n.Len(), Bytes: len(n.table.Bytes()), Shared: n.isShared})
	}
	slices.Reverse(tables)
	return unused, tables
}
