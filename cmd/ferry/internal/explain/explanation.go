package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// ReportParam is the parameter that makes ranks send reports to the launcher.
const ReportParam = "session.report"

// ReportName is the name of the report with a rank's explanation.
const ReportName = "explain"

// Component is the verdict about a component, merged over the ranks.
type Component struct {
	mpi.ComponentVerdict
	// Ranks with this verdict, or empty for all.
	VerdictRanks []int `json:"ranks,omitempty"`
	// IsUsed reports whether a selected PML, BTL or MTL carries messages between any two
	// ranks. It is nil for other components.
	IsUsed *bool `json:"used,omitempty"`
}

// Explanation has the results of selection, merged over the ranks.
type Explanation struct {
	Pairs []mpi.Pair `json:"pairs"`
	// UnusedProcs counts the processes that a rank has not used and that have no pair.
	UnusedProcs []assembly.UnusedProcs `json:"unused,omitempty"`
	// CommTables has the tables of communicators that were created in levels, each kind once.
	CommTables []assembly.CommTable `json:"tables,omitempty"`
	Components []Component          `json:"components"`
	// Requirements has the requirements of components in any rank.
	Requirements []assembly.Need `json:"requirements"`
	// Collectives has the algorithms of collectives, which are equal in all ranks.
	Collectives []mpi.CollectiveChoice `json:"collectives"`
}

// carriers are the frameworks with components that carry messages.
var carriers = []framework.Kind{framework.PML, framework.BTL, framework.MTL}

// Merge merges the explanations of ranks. A component with the same verdict in all ranks has one entry.
func Merge(reports []launch.Report) (Explanation, error) {
	all := Explanation{Collectives: []mpi.CollectiveChoice{}}
	where := map[mpi.ComponentVerdict][]int{}
	var order []mpi.ComponentVerdict
	received := 0
	for _, r := range slices.SortedFunc(slices.Values(reports), func(a, b launch.Report) int { return cmp.Compare(a.Rank, b.Rank) }) {
		if r.Name != ReportName {
			continue
		}
		var e mpi.Explanation
		if err := json.Unmarshal(r.Body, &e); err != nil {
			return all, fmt.Errorf("explanation of rank %d: %w", r.Rank, err)
		}
		received++
		all.Pairs = append(all.Pairs, e.Pairs...)
		all.UnusedProcs = append(all.UnusedProcs, e.UnusedProcs...)
		for _, t := range e.CommTables {
			if !slices.Contains(all.CommTables, t) {
				all.CommTables = append(all.CommTables, t)
			}
		}
		for _, n := range e.Requirements {
			if !slices.ContainsFunc(all.Requirements, func(have assembly.Need) bool { return have.String() == n.String() }) {
				all.Requirements = append(all.Requirements, n)
			}
		}
		for _, c := range e.Collectives {
			if !slices.Contains(all.Collectives, c) {
				all.Collectives = append(all.Collectives, c)
			}
		}
		for _, c := range e.Components {
			if where[c] == nil {
				order = append(order, c)
			}
			where[c] = append(where[c], r.Rank)
		}
	}
	if received == 0 {
		return all, errors.New("no rank sent an explanation: the program opened no session, or ended without closing it")
	}
	carries := map[string]bool{}
	for _, p := range all.Pairs {
		carries[p.PML], carries[p.Transport] = true, true
	}
	for _, verdict := range order {
		c := Component{ComponentVerdict: verdict}
		if used := carries[c.Name]; verdict.Verdict == framework.StatusSelected.String() && slices.Contains(carriers, framework.Kind(c.Framework)) {
			c.IsUsed = &used
		}
		if ranks := where[verdict]; len(ranks) < received {
			c.VerdictRanks = ranks
		}
		all.Components = append(all.Components, c)
	}
	slices.SortStableFunc(all.Pairs, func(a, b mpi.Pair) int {
		return cmp.Or(cmp.Compare(a.FromRank, b.FromRank), cmp.Compare(a.ToRank, b.ToRank))
	})
	slices.SortStableFunc(all.Collectives, func(a, b mpi.CollectiveChoice) int { return cmp.Compare(a.MemberCount, b.MemberCount) })
	slices.SortStableFunc(all.Components, func(a, b Component) int { return cmp.Compare(a.Framework, b.Framework) })
	return all, nil
}
