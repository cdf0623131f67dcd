package assembly

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Explanation says what carries messages from this process, and why. Its JSON
// is what `ferry explain --json` prints.
type Explanation struct {
	// Pairs holds one entry for each process whose business card this one has,
	// itself first. Of processes that have ended, with their communicators, there are the last 1,000.
	// Processes on other nodes that are in communicators created in levels have an entry from their first use on.
	Pairs []Pair `json:"pairs"`
	// Unused counts the processes that have no entry yet, by node.
	Unused []UnusedProcs `json:"unused,omitempty"`
	// Tables holds the tables of communicators that were created in levels.
	Tables []CommTable `json:"tables,omitempty"`
	// Components holds the verdict on each component, as selection decided.
	Components []ComponentVerdict `json:"components"`
	// Requirements holds what the open components need of others.
	Requirements []Need `json:"requirements"`
	// Collectives holds what collective operations do on communicators that have had one.
	Collectives []Collective `json:"collectives"`
}

// Pair is how messages from one process to another travel.
type Pair struct {
	From      int                   `json:"from"` // ranks in mpi://WORLD
	To        int                   `json:"to"`
	Namespace string                `json:"namespace,omitempty"` // of the other process, if it is of another job
	Stream    int                   `json:"stream,omitempty"`    // of From; 0: the process's own stack
	ToStream  int                   `json:"to_stream,omitempty"` // of To, likewise
	PML       string                `json:"pml"`
	Transport string                `json:"transport"` // empty: none reaches it
	Device    string                `json:"device"`
	Provider  string                `json:"provider"`
	Rejected  []framework.Rejection `json:"rejected,omitempty"` // the other transports
	Notes     []string              `json:"notes,omitempty"`    // the transport's ways to this process that are on or off, and why
	// Unused holds the addresses of both ends that carry nothing now.
	Unused []framework.Rejection `json:"unused_addresses,omitempty"`
	// Learnt is what From has learnt of large messages that came from To.
	Learnt []pml.Learnt `json:"learnt,omitempty"`
}

// ComponentVerdict is what became of a component.
type ComponentVerdict struct {
	Framework string `json:"framework"`
	Name      string `json:"name"`
	Verdict   string `json:"verdict"` // "selected", "not selected", "unavailable", "not built", "failed"
	Reason    string `json:"reason"`
	Hint      string `json:"hint,omitempty"`
}

// Need is a requirement of a component, and what satisfies it.
type Need struct {
	Component   string   `json:"component"`           // "pml cm"
	Requires    string   `json:"requires"`            // "mtl"; "pml for the node"
	For         string   `json:"for"`                 // in a few words
	Parameter   string   `json:"parameter,omitempty"` // that asks for it
	SatisfiedBy []string `json:"satisfied_by"`        // names of components, by preference; empty: none
	Reason      string   `json:"reason,omitempty"`    // why none does
}

func newNeed(of framework.Verdict, r framework.Requirement) Need {
	n := Need{Component: fmt.Sprintf("%s %s", of.Kind, of.Name), Requires: string(r.Kind), For: r.For, Parameter: r.By, SatisfiedBy: []string{}}
	if r.Node {
		n.Requires += " for the node"
	}
	return n
}

// String is a line for people.
func (n Need) String() string {
	by := strings.Join(n.SatisfiedBy, ", ")
	if by == "" {
		by = "none: " + n.Reason
	}
	return fmt.Sprintf("%s requires %s (%s): %s", n.Component, n.Requires, n.For+clause("; %s", n.Parameter), by)
}

// Explain says which components were selected and why not the others, and how
// messages to each known process travel, or would. It sends nothing.
func (a *Assembly) Explain() *Explanation {
	x := &Explanation{Pairs: append(a.routes(), a.streamPairs()...)}
	x.Unused, x.Tables = a.explainTables()
	for _, kind := range a.registry.Kinds() {
		for _, v := range a.selections[kind].Verdicts {
			if kind == framework.Bootstrap && a.options.Client != nil && v.Status == framework.StatusSelected {
				v.Status, v.Reason = framework.StatusNotSelected, "the program gave its own (WithBootstrap)"
			}
			if kind == framework.Coll {
				if out := a.leftOutOf(v.Name); v.Reason == "" {
					v.Reason = out
				} else {
					v.Reason += clause("; %s", out)
				}
			}
			x.Components = append(x.Components, ComponentVerdict{
				Framework: string(kind), Name: v.Name, Verdict: v.Status.String(), Reason: v.Reason, Hint: v.Hint,
			})
		}
	}
	x.Requirements = append([]Need{}, a.needs...)
	x.Collectives = a.collectives()
	return x
}

// LeftOut notes that the members of a communicator do without a coll component, and why.
func (a *Assembly) LeftOut(component string, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.leftOut[component]
	x.times++
	x.why = why
	if a.leftOut == nil {
		a.leftOut = map[string]leftOut{}
	}
	a.leftOut[component] = x
}

// leftOut is why a coll component was left out the last time.
type leftOut struct {
	times int
	why   error
}

func (a *Assembly) leftOutOf(component string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch x := a.leftOut[component]; x.times {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("not used on one communicator: %v", x.why)
	default:
		return fmt.Sprintf("not used on %d communicators, the last time because %v", x.times, x.why)
	}
}

// sortedLives returns the processes whose cards have come, without this one, by their ids. mu is locked.
func (a *Assembly) sortedLives() []framework.Life {
	var all []framework.Life
	for life := range a.known.records() {
		all = append(all, life)
	}
	slices.SortFunc(all, func(x, y framework.Life) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// explained returns the processes with an entry in Pairs, by their ids.
func (a *Assembly) explained() []framework.Life {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.sortedLives()
	for _, life := range a.past.order {
		if !a.known.hasRecord(life) {
			all = append(all, life)
		}
	}
	slices.SortFunc(all, func(x, y framework.Life) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// note keeps how the members of a new communicator are reached, for a report at
// the end: a peer may be gone by then to which no message ever went.
func (a *Assembly) note(group pml.Members) {
	if !a.lateRoutes {
		return
	}
	for rank := range group.Len() {
		life := group.Member(rank).Life
		a.mu.Lock()
		_, hasRecord := a.known.byID[life.ID]
		a.mu.Unlock()
		if !hasRecord && life != a.env.Self { // In a table.
			continue
		}
		p := a.pair(life)
		a.mu.Lock()
		a.noted[life] = p
		a.mu.Unlock()
	}
}

func (a *Assembly) pair(life framework.Life) Pair {
	a.mu.Lock()
	hasRecord := a.known.hasRecord(life)
	was, dropped := a.past.pairs[life]
	a.mu.Unlock()
	if dropped && !hasRecord {
		return was
	}
	p, r := a.route(life)
	if !r.Used && !r.Failed {
		a.mu.Lock()
		defer a.mu.Unlock()
		if was, ok := a.noted[life]; ok {
			return was
		}
	}
	return p
}

// route asks the PMLs how messages to a process travel, or would. The Route says whether
// they do, or that none do because a path was tried and never opened.
func (a *Assembly) route(life framework.Life) (Pair, pml.Route) {
	var found pml.Route
	own, _ := a.env.Identity.Proc.Process()
	to, stream := a.env.Worlds.Proc(life.ID).Process()
	p := Pair{From: int(own.Rank), Stream: a.number, To: int(to.Rank), ToStream: stream}
	if to.Namespace != own.Namespace {
		p.Namespace = to.Namespace
	}
	for i, m := range a.pmls {
		r := m.Route(life)
		found.Used, found.Failed = found.Used || r.Used, found.Failed || r.Failed
		if i > 0 && r.Transport == "" {
			continue
		}
		p.PML, p.Transport, p.Device, p.Provider = m.Name, r.Transport, r.Device, r.Provider
		p.Rejected, p.Notes, p.Unused, p.Learnt = r.Rejected, r.Notes, r.Unused, r.Learnt
		if r.Transport != "" {
			break
		}
	}
	return p, found
}

// String renders the explanation for people, a line for each fact.
func (x *Explanation) String() string {
	var b strings.Builder
	for _, p := range x.Pairs {
		to := fmt.Sprint(p.To)
		if p.Namespace != "" {
			to = p.Namespace + ":" + to
		}
		to += streamClause(p.ToStream)
		if p.Transport == "" {
			fmt.Fprintf(&b, "%d%s -> %s: no transport (pml %s)\n", p.From, streamClause(p.Stream), to, p.PML)
		} else {
			fmt.Fprintf(&b, "%d%s -> %s: %s over %s%s%s\n", p.From, streamClause(p.Stream), to, p.PML, p.Transport, clause(" (%s)", p.Device), clause(", provider %s", p.Provider))
		}
		for _, r := range p.Rejected {
			fmt.Fprintf(&b, "    not %s: %s\n", r.Name, r.Reason)
		}
		for _, n := range p.Notes {
			fmt.Fprintf(&b, "    %s\n", n)
		}
		for _, l := range p.Learnt {
			fmt.Fprintf(&b, "    messages from there, %v\n", l)
		}
		for _, u := range p.Unused {
			fmt.Fprintf(&b, "    address %s is not used: %s\n", u.Name, u.Reason)
		}
	}
	for _, u := range x.Unused {
		fmt.Fprintln(&b, u)
	}
	for _, t := range x.Tables {
		fmt.Fprintln(&b, t)
	}
	for _, c := range x.Components {
		fmt.Fprintf(&b, "%s %s: %s%s%s\n", c.Framework, c.Name, c.Verdict, clause(": %s", c.Reason), clause(" (%s)", c.Hint))
	}
	for _, n := range x.Requirements {
		fmt.Fprintln(&b, n)
	}
	for _, c := range x.Collectives {
		fmt.Fprintf(&b, "%s of %d from %d bytes: %s %s\n", c.Operation, c.Members, c.From, c.Component, c.Algorithm)
	}
	return b.String()
}

// streamClause names a stream after the number of its process.
func streamClause(number int) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf(" stream %d", number)
}

// clause is a part of a sentence that is left out where there is nothing to say.
func clause(format, what string) string {
	if what == "" {
		return ""
	}
	return fmt.Sprintf(format, what)
}

// What session.report may ask for: names of reports.
const (
	reportExplain = "explain"
	reportTiming  = "timing"
)

// reportTimeout is how long the end of the last session waits for the launcher
// to take a report: it does so at once, or is gone.
const reportTimeout = 5 * time.Second

// ExplainsItself reports whether this process prints its routes when its last session closes. It does if the parameter
// explain is set, the launcher takes no reports, and its rank is 0.
func (a *Assembly) ExplainsItself() bool {
	if !a.isExplaining || a.client.Identity().Proc.Rank != 0 {
		return false
	}
	_, hasReporter := framework.As[bootstrap.Reporter](a.client)
	return !hasReporter
}

// report sends the reports of session.report, and that of the parameter explain, to a launcher that takes reports.
func (a *Assembly) report() error {
	to, ok := framework.As[bootstrap.Reporter](a.client)
	if !ok {
		return nil
	}
	var errs []error
	for _, name := range a.reports {
		var content any
		switch name {
		case reportExplain:
			content = a.Explain()
		case reportTiming:
			content = a.timing.snapshot()
		}
		body, err := json.Marshal(content)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
			err = framework.Ended(ctx, "report", to.Report(ctx, name, body))
			cancel()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
