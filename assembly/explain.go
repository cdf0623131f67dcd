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

// Explanation reports the transport of each pair of processes and the reasons of the choice. `ferry explain --json` prints it as JSON.
type Explanation struct {
	// Pairs has one entry for each process with a known business card, this one first. Of ended processes without a communicator, the last
	// 1,000 are included. Processes on other nodes that are members only of communicators created in levels have an entry from their first
	// use on.
	Pairs []Pair `json:"pairs"`
	// UnusedProcs counts the processes that have no entry yet, by node.
	UnusedProcs []UnusedProcs `json:"unused,omitempty"`
	// CommTables holds the tables of communicators that were created in levels.
	CommTables []CommTable `json:"tables,omitempty"`
	// Components holds the verdict of selection on each component.
	Components []ComponentVerdict `json:"components"`
	// Requirements holds the requirements of the open components.
	Requirements []Need `json:"requirements"`
	// Collectives holds the algorithms of communicators that have had a collective.
	Collectives []Collective `json:"collectives"`
}

// Pair is the route of messages from one process to another.
type Pair struct {
	// FromRank and ToRank are ranks in mpi://WORLD.
	FromRank int `json:"from"`
	ToRank   int `json:"to"`
	// ToNamespace is the job of the other process. It is empty in the same job.
	ToNamespace string `json:"namespace,omitempty"`
	// FromStream and ToStream are the numbers of the streams at both ends, 0 for the process itself.
	FromStream int    `json:"stream,omitempty"`
	ToStream   int    `json:"to_stream,omitempty"`
	PML        string `json:"pml"`
	// Transport is empty if no transport reaches the process.
	Transport string `json:"transport"`
	Device    string `json:"device"`
	Provider  string `json:"provider"`
	// RejectedTransports has the other transports with the reasons.
	RejectedTransports []framework.Rejection `json:"rejected,omitempty"`
	// FeatureNotes has the features of the transport that are on or off for this process, with the reasons.
	FeatureNotes []string `json:"notes,omitempty"`
	// UnusedAddresses has the addresses of both ends without a connection.
	UnusedAddresses []framework.Rejection `json:"unused_addresses,omitempty"`
	// TransferEstimates has the results of this process's selector for large messages from the other one.
	TransferEstimates []pml.TransferEstimates `json:"learnt,omitempty"`
}

// ComponentVerdict is the verdict on a component.
type ComponentVerdict struct {
	Framework string `json:"framework"`
	Name      string `json:"name"`
	Verdict   string `json:"verdict"` // "selected", "not selected", "unavailable", "not built", "failed"
	Reason    string `json:"reason"`
	Hint      string `json:"hint,omitempty"`
}

// Need is a requirement of a component with the components that satisfy it.
type Need struct {
	// For example "pml cm".
	Component string `json:"component"`
	// For example "mtl" or "pml for the node".
	Requires string `json:"requires"`
	// For is the purpose in a few words.
	For string `json:"for"`
	// Parameter is the one that requests it, if any.
	Parameter string `json:"parameter,omitempty"`
	// SatisfiedBy has names of components, by preference. It is empty if none satisfies the requirement, for Reason.
	SatisfiedBy []string `json:"satisfied_by"`
	Reason      string   `json:"reason,omitempty"`
}

func newNeed(of framework.Verdict, r framework.Requirement) Need {
	n := Need{Component: fmt.Sprintf("%s %s", of.Kind, of.Name), Requires: string(r.Kind), For: r.For, Parameter: r.By, SatisfiedBy: []string{}}
	if r.Node {
		n.Requires += " for the node"
	}
	return n
}

// String returns one line of text.
func (n Need) String() string {
	by := strings.Join(n.SatisfiedBy, ", ")
	if by == "" {
		by = "none: " + n.Reason
	}
	return fmt.Sprintf("%s requires %s (%s): %s", n.Component, n.Requires, n.For+clause("; %s", n.Parameter), by)
}

// Explain returns the verdict on each component and the route of messages to each known process. It sends nothing.
func (a *Assembly) Explain() *Explanation {
	x := &Explanation{Pairs: append(a.routes(), a.streamPairs()...)}
	x.UnusedProcs, x.CommTables = a.explainTables()
	for _, kind := range a.registry.Kinds() {
		for _, v := range a.selections[kind].Verdicts {
			if kind == framework.Bootstrap && a.options.Client != nil && v.Status == framework.StatusSelected {
				v.Status, v.Reason = framework.StatusNotSelected, "the program gave its own (WithBootstrap)"
			}
			if kind == framework.Coll {
				if out := a.omissionText(v.Name); v.Reason == "" {
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
	x.Requirements = append([]Need{}, a.pmlNeeds...)
	x.Collectives = a.collectives()
	return x
}

// explainRecords are the records for Explain. Guarded by Assembly.mu.
type explainRecords struct {
	// Routes of members when their communicator was created.
	savedRoutes   map[framework.Incarnation]Pair
	droppedRoutes routeHistory
	// By number of members.
	collTables map[int]recordedTable
	// By component.
	collOmissions map[string]omission
}

// RecordOmission records that the members of a communicator do not use a coll component, with the reason.
func (a *Assembly) RecordOmission(component string, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.collOmissions[component]
	x.commCount++
	x.lastReason = why
	if a.collOmissions == nil {
		a.collOmissions = map[string]omission{}
	}
	a.collOmissions[component] = x
}

// omission counts the communicators without a coll component, and has the last reason.
type omission struct {
	commCount  int
	lastReason error
}

func (a *Assembly) omissionText(component string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch x := a.collOmissions[component]; x.commCount {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("not used on one communicator: %v", x.lastReason)
	default:
		return fmt.Sprintf("not used on %d communicators, the last time because %v", x.commCount, x.lastReason)
	}
}

// sortedIncarnations returns the incarnations with a record, sorted by id. mu is locked.
func (a *Assembly) sortedIncarnations() []framework.Incarnation {
	var all []framework.Incarnation
	for incarnation := range a.peers.records() {
		all = append(all, incarnation)
	}
	slices.SortFunc(all, func(x, y framework.Incarnation) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// explainedPeers returns the incarnations with an entry in Pairs, sorted by id.
func (a *Assembly) explainedPeers() []framework.Incarnation {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.sortedIncarnations()
	for _, incarnation := range a.droppedRoutes.dropOrder {
		if !a.peers.hasRecord(incarnation) {
			all = append(all, incarnation)
		}
	}
	slices.SortFunc(all, func(x, y framework.Incarnation) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// saveRoutes stores the routes to the members of a new communicator for a report at the end. A peer without messages may have left by then.
func (a *Assembly) saveRoutes(group pml.Members) {
	if !a.hasLateRoutes {
		return
	}
	for rank := range group.Len() {
		incarnation := group.Member(rank).Incarnation
		a.mu.Lock()
		_, hasRecord := a.peers.byID[incarnation.ID]
		a.mu.Unlock()
		if !hasRecord && incarnation != a.env.Self { // It is in a table.
			continue
		}
		p := a.pair(incarnation)
		a.mu.Lock()
		a.savedRoutes[incarnation] = p
		a.mu.Unlock()
	}
}

func (a *Assembly) pair(incarnation framework.Incarnation) Pair {
	a.mu.Lock()
	hasRecord := a.peers.hasRecord(incarnation)
	was, dropped := a.droppedRoutes.pairByPeer[incarnation]
	a.mu.Unlock()
	if dropped && !hasRecord {
		return was
	}
	p, r := a.route(incarnation)
	if !r.Used && !r.Failed {
		a.mu.Lock()
		defer a.mu.Unlock()
		if was, ok := a.savedRoutes[incarnation]; ok {
			return was
		}
	}
	return p
}

// route returns the route of messages to an incarnation. The Route reports whether it is in use, or whether a path was tried and failed.
func (a *Assembly) route(incarnation framework.Incarnation) (Pair, pml.Route) {
	var found pml.Route
	own, _ := a.env.Identity.Proc.Process()
	to, stream := a.env.Worlds.Proc(incarnation.ID).Process()
	p := Pair{FromRank: int(own.Rank), FromStream: a.streamNumber, ToRank: int(to.Rank), ToStream: stream}
	if to.Namespace != own.Namespace {
		p.ToNamespace = to.Namespace
	}
	for i, m := range a.pmls {
		r := m.Route(incarnation)
		found.Used, found.Failed = found.Used || r.Used, found.Failed || r.Failed
		if i > 0 && r.Transport == "" {
			continue
		}
		p.PML, p.Transport, p.Device, p.Provider = m.Name, r.Transport, r.Device, r.Provider
		p.RejectedTransports, p.FeatureNotes, p.UnusedAddresses, p.TransferEstimates = r.Rejected, r.Notes, r.Unused, r.Estimates
		if r.Transport != "" {
			break
		}
	}
	return p, found
}

// String returns the explanation as text, one line for each fact.
func (x *Explanation) String() string {
	var b strings.Builder
	for _, p := range x.Pairs {
		to := fmt.Sprint(p.ToRank)
		if p.ToNamespace != "" {
			to = p.ToNamespace + ":" + to
		}
		to += streamClause(p.ToStream)
		if p.Transport == "" {
			fmt.Fprintf(&b, "%d%s -> %s: no transport (pml %s)\n", p.FromRank, streamClause(p.FromStream), to, p.PML)
		} else {
			fmt.Fprintf(&b, "%d%s -> %s: %s over %s%s%s\n", p.FromRank, streamClause(p.FromStream), to, p.PML, p.Transport, clause(" (%s)", p.Device), clause(", provider %s", p.Provider))
		}
		for _, r := range p.RejectedTransports {
			fmt.Fprintf(&b, "    not %s: %s\n", r.Name, r.Reason)
		}
		for _, n := range p.FeatureNotes {
			fmt.Fprintf(&b, "    %s\n", n)
		}
		for _, l := range p.TransferEstimates {
			fmt.Fprintf(&b, "    messages from there, %v\n", l)
		}
		for _, u := range p.UnusedAddresses {
			fmt.Fprintf(&b, "    address %s is not used: %s\n", u.Name, u.Reason)
		}
	}
	for _, u := range x.UnusedProcs {
		fmt.Fprintln(&b, u)
	}
	for _, t := range x.CommTables {
		fmt.Fprintln(&b, t)
	}
	for _, c := range x.Components {
		fmt.Fprintf(&b, "%s %s: %s%s%s\n", c.Framework, c.Name, c.Verdict, clause(": %s", c.Reason), clause(" (%s)", c.Hint))
	}
	for _, n := range x.Requirements {
		fmt.Fprintln(&b, n)
	}
	for _, c := range x.Collectives {
		fmt.Fprintf(&b, "%s of %d from %d bytes: %s %s\n", c.Operation, c.MemberCount, c.FromBytes, c.Component, c.Algorithm)
	}
	return b.String()
}

// streamClause returns the text for a stream of a process, "" for the process itself.
func streamClause(number int) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf(" stream %d", number)
}

// clause formats a part of a sentence, or returns "" for an empty argument.
func clause(format, text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(format, text)
}

// Names of the reports of session.report.
const (
	reportExplain = "explain"
	reportTiming  = "timing"
)

// reportTimeout limits the time that the end of the last session waits for the launcher to acknowledge a report.
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
	for _, name := range a.reportNames {
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
