package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// ReportParam is the parameter that makes ranks hand in reports.
const ReportParam = "session.report"

// ReportName is the name under which a rank hands in its explanation.
const ReportName = "explain"

// Component is what became of a component.
type Component struct {
	mpi.ComponentVerdict
	Ranks []int `json:"ranks,omitempty"` // where it became so; empty: everywhere
}

// Explanation is what selection did, seen by all ranks.
type Explanation struct {
	Pairs      []mpi.Pair  `json:"pairs"`
	Components []Component `json:"components"`
	// Requirements holds what components need of others, in some rank.
	Requirements []assembly.Need `json:"requirements"`
}

// Merge joins the explanations that ranks handed in. A component that all ranks
// judge alike stands there once.
func Merge(reports []launch.Report) (Explanation, error) {
	var all Explanation
	where := map[mpi.ComponentVerdict][]int{}
	var order []mpi.ComponentVerdict
	handedIn := 0
	for _, r := range slices.SortedFunc(slices.Values(reports), func(a, b launch.Report) int { return cmp.Compare(a.Rank, b.Rank) }) {
		if r.Name != ReportName {
			continue
		}
		var e mpi.Explanation
		if err := json.Unmarshal(r.Body, &e); err != nil {
			return all, fmt.Errorf("explanation of rank %d: %w", r.Rank, err)
		}
		handedIn++
		all.Pairs = append(all.Pairs, e.Pairs...)
		for _, n := range e.Requirements {
			if !slices.ContainsFunc(all.Requirements, func(have assembly.Need) bool { return have.String() == n.String() }) {
				all.Requirements = append(all.Requirements, n)
			}
		}
		for _, c := range e.Components {
			if where[c] == nil {
				order = append(order, c)
			}
			where[c] = append(where[c], r.Rank)
		}
	}
	if handedIn == 0 {
		return all, errors.New("no rank has handed in an explanation: the program opened no session, or ended without closing it")
	}
	for _, verdict := range order {
		c := Component{ComponentVerdict: verdict}
		if ranks := where[verdict]; len(ranks) < handedIn {
			c.Ranks = ranks
		}
		all.Components = append(all.Components, c)
	}
	slices.SortStableFunc(all.Pairs, func(a, b mpi.Pair) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	slices.SortStableFunc(all.Components, func(a, b Component) int { return cmp.Compare(a.Framework, b.Framework) })
	return all, nil
}

// Print writes tables for people.
func (e Explanation) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tPML\tTRANSPORT\tDEVICE\tPROVIDER\tNOT USED")
	for _, p := range e.Pairs {
		var not []string
		for _, r := range p.Rejected {
			not = append(not, r.Name+": "+r.Reason)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", p.From, p.To, p.PML, cmp.Or(p.Transport, "no transport"),
			cmp.Or(p.Device, "-"), cmp.Or(p.Provider, "-"), cmp.Or(strings.Join(not, "; "), "-"))
	}
	e.printNotes(t)
	e.printAddresses(t)
	fmt.Fprintln(t, "\nFRAMEWORK\tCOMPONENT\tVERDICT\tREASON")
	for _, c := range e.Components {
		reason := c.Reason
		if c.Hint != "" {
			reason += " (" + c.Hint + ")"
		}
		if c.Ranks != nil {
			reason = strings.TrimSpace(fmt.Sprintf("%s [ranks %s]", reason, strings.Trim(fmt.Sprint(c.Ranks), "[]")))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Framework, c.Name, c.Verdict, cmp.Or(reason, "-"))
	}
	if len(e.Requirements) > 0 {
		fmt.Fprintln(t)
	}
	for _, n := range e.Requirements {
		fmt.Fprintln(t, n)
	}
	return t.Flush()
}

// printNotes writes each note once, with the pairs that it is about.
func (e Explanation) printNotes(w io.Writer) {
	notes := about[string]{}
	for _, p := range e.Pairs {
		for _, n := range p.Notes {
			notes.add(n, p)
		}
	}
	if len(notes.order) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range notes.order {
		fmt.Fprintf(w, "%s [pairs %s]\n", n, notes.list(n))
	}
}

// printAddresses writes a table of the addresses that carry nothing, each once.
func (e Explanation) printAddresses(w io.Writer) {
	unused := about[framework.Rejection]{}
	for _, p := range e.Pairs {
		for _, u := range p.Unused {
			unused.add(u, p)
		}
	}
	if len(unused.order) > 0 {
		fmt.Fprintln(w, "\nADDRESS\tNOT USED BECAUSE\tPAIRS")
	}
	for _, u := range unused.order {
		fmt.Fprintf(w, "%s\t%s\t%s\n", u.Name, u.Reason, unused.list(u))
	}
}

// about holds facts in the order in which they came, each with the pairs that it is about.
type about[T comparable] struct {
	order []T
	pairs map[T][]string
}

func (a *about[T]) add(fact T, p mpi.Pair) {
	if a.pairs == nil {
		a.pairs = map[T][]string{}
	}
	if a.pairs[fact] == nil {
		a.order = append(a.order, fact)
	}
	a.pairs[fact] = append(a.pairs[fact], fmt.Sprintf("%d-%d", p.From, p.To))
}

func (a *about[T]) list(fact T) string {
	const most = 8 // pairs that are listed; a full list of thousands hides the fact
	all := a.pairs[fact]
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], " "), len(all)-most)
	}
	return strings.Join(all, " ")
}
