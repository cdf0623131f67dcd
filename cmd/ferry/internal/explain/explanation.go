package explain

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// ReportParam is the parameter that makes ranks hand in reports.
const ReportParam = "session.report"

// ReportName is the name under which a rank hands in its explanation.
const ReportName = "explain"

// Pair says what carries messages from one rank to another.
type Pair struct {
	From      int         `json:"from"`
	To        int         `json:"to"`
	PML       string      `json:"pml"`
	Transport string      `json:"transport"`
	Device    string      `json:"device"`
	Provider  string      `json:"provider"`
	Rejected  []Rejection `json:"rejected,omitempty"`
	Notes     []string    `json:"notes,omitempty"`
}

// Rejection is a transport that does not serve a pair, and why.
type Rejection struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Component says what became of a component.
type Component struct {
	Framework string `json:"framework"`
	Name      string `json:"name"`
	Verdict   string `json:"verdict"`
	Reason    string `json:"reason"`
	Hint      string `json:"hint,omitempty"`
	// Ranks says where it became so; empty: everywhere.
	Ranks []int `json:"ranks,omitempty"`
}

// Explanation is what selection did, seen by one rank or by all.
type Explanation struct {
	Pairs      []Pair      `json:"pairs"`
	Components []Component `json:"components"`
}

// Merge joins the explanations that ranks handed in. A component that all ranks
// judge alike stands there once.
func Merge(reports []launch.Report) (Explanation, error) {
	var all Explanation
	type key struct{ framework, name, verdict, reason, hint string }
	where := map[key][]int{}
	var order []key
	handedIn := 0
	for _, r := range slices.SortedFunc(slices.Values(reports), func(a, b launch.Report) int { return cmp.Compare(a.Rank, b.Rank) }) {
		if r.Name != ReportName {
			continue
		}
		var e Explanation
		if err := json.Unmarshal(r.Body, &e); err != nil {
			return all, fmt.Errorf("explanation of rank %d: %w", r.Rank, err)
		}
		handedIn++
		all.Pairs = append(all.Pairs, e.Pairs...)
		for _, c := range e.Components {
			k := key{c.Framework, c.Name, c.Verdict, c.Reason, c.Hint}
			if where[k] == nil {
				order = append(order, k)
			}
			where[k] = append(where[k], r.Rank)
		}
	}
	if handedIn == 0 {
		return all, errors.New("no rank has handed in an explanation: the program opened no session, or ended without closing it")
	}
	for _, k := range order {
		c := Component{Framework: k.framework, Name: k.name, Verdict: k.verdict, Reason: k.reason, Hint: k.hint}
		if len(where[k]) < handedIn {
			c.Ranks = where[k]
		}
		all.Components = append(all.Components, c)
	}
	slices.SortStableFunc(all.Pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	slices.SortStableFunc(all.Components, func(a, b Component) int { return cmp.Compare(a.Framework, b.Framework) })
	return all, nil
}

// Print writes tables for people.
func (e Explanation) Print(w io.Writer) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tPML\tTRANSPORT\tDEVICE\tPROVIDER\tNOT USED")
	for _, p := range e.Pairs {
		transport := p.Transport
		if transport == "" {
			transport = "no transport"
		}
		var not []string
		for _, r := range p.Rejected {
			not = append(not, r.Name+": "+r.Reason)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", p.From, p.To, p.PML, transport, dash(p.Device), dash(p.Provider), dash(strings.Join(not, "; ")))
	}
	t.Flush() // into memory: it can't fail
	e.printNotes(&b)
	fmt.Fprintln(&b)
	t = tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "FRAMEWORK\tCOMPONENT\tVERDICT\tREASON")
	for _, c := range e.Components {
		reason := c.Reason
		if c.Hint != "" {
			reason += " (" + c.Hint + ")"
		}
		if c.Ranks != nil {
			reason = strings.TrimSpace(fmt.Sprintf("%s [ranks %s]", reason, strings.Trim(fmt.Sprint(c.Ranks), "[]")))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Framework, c.Name, c.Verdict, dash(reason))
	}
	t.Flush()
	_, err := w.Write(b.Bytes())
	return err
}

// printNotes writes each note once, with the pairs that it is about.
func (e Explanation) printNotes(w io.Writer) {
	var notes []string
	pairs := map[string][]string{}
	for _, p := range e.Pairs {
		for _, n := range p.Notes {
			if pairs[n] == nil {
				notes = append(notes, n)
			}
			pairs[n] = append(pairs[n], fmt.Sprintf("%d-%d", p.From, p.To))
		}
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	const most = 8 // pairs that are listed; a full list of thousands hides the note
	for _, n := range notes {
		list := pairs[n]
		more := ""
		if len(list) > most {
			list, more = list[:most], fmt.Sprintf(" and %d more", len(list)-most)
		}
		fmt.Fprintf(w, "%s [pairs %s%s]\n", n, strings.Join(list, " "), more)
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
