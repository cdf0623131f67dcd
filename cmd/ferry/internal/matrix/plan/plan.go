package plan

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
)

// A Request holds the options of a run. Set its fields before the first call.
type Request struct {
	Registry *framework.Registry
	Values   *framework.Values // Includes SetParams.
	// NAME=VALUE, of all processes.
	SetParams []string
	Suite     Suite
	// That of report.OpenCase may be longer; see Suite.OpenLimit.
	CaseLimit time.Duration
	// Nil selects all stacks.
	SelectedStacks *Components
	// Further required stacks, or nil. Stacks named in SelectedStacks are required, too.
	RequiredStacks *Components
	// Nil selects all cases.
	CasePattern *regexp.Regexp
	Exclude     *Exclusions
	// Further flags of `ferry matrix` for a row's Command.
	CommandFlags []string
	// LauncherRanks is the number of ranks of the launcher. With 0, each column gets separate processes.
	LauncherRanks int
}

// A Plan is the list of stacks and columns of a run.
type Plan struct {
	*Request
	Stacks []report.Stack
	// The first column is that of report.OpenCase.
	ColumnsByStack [][]Column
}

// Cells returns the names of a stack's cases.
func (p *Plan) Cells(stack int) (cells []string) {
	for _, c := range p.ColumnsByStack[stack] {
		cells = append(cells, c.CellNames...)
	}
	return cells
}

// MakePlan finds the stacks and selects stacks and cases. An empty selection is an error.
func (r *Request) MakePlan(ctx context.Context, survey SurveyFunc) (*Plan, error) {
	stacks, err := r.findStacks(ctx, survey)
	if err == nil && r.SelectedStacks != nil {
		stacks, err = r.SelectedStacks.selectStacks(stacks)
	}
	if err != nil {
		return nil, err
	}
	if err := r.markRequired(stacks); err != nil {
		return nil, err
	}
	p := r.PlanFor(stacks)
	if r.CasePattern != nil && !r.CasePattern.MatchString(report.OpenCase) &&
		slices.ContainsFunc(stacks, func(s report.Stack) bool { return s.AbsentReason == "" }) &&
		!slices.ContainsFunc(p.ColumnsByStack, func(c []Column) bool { return len(c) > 1 }) {
		return nil, fmt.Errorf("%w: no case of suite %s matches %q; --list shows them", framework.ErrConfig, r.Suite.Name, r.CasePattern)
	}
	return p, nil
}

// markRequired marks the required stacks.
func (r *Request) markRequired(stacks []report.Stack) error {
	if r.RequiredStacks != nil {
		if _, err := r.RequiredStacks.selectStacks(stacks); err != nil && r.SelectedStacks != nil {
			return fmt.Errorf("--require: %w (--components leaves out all others)", err)
		} else if err != nil {
			return fmt.Errorf("--require: %w", err)
		}
	}
	for i, s := range stacks {
		stacks[i].IsRequired = r.SelectedStacks.hasName(s.Name) || r.RequiredStacks != nil && r.RequiredStacks.Includes(s.Name)
	}
	return nil
}

// PlanFor returns the plan for selected stacks.
func (r *Request) PlanFor(stacks []report.Stack) *Plan {
	p := &Plan{Request: r, Stacks: stacks, ColumnsByStack: make([][]Column, len(stacks))}
	for i, s := range stacks {
		p.ColumnsByStack[i] = []Column{openColumn(s, r.LauncherRanks, r.Values)}
		if s.AbsentReason != "" || r.IsIdle(s) {
			continue
		}
		for _, c := range r.Suite.columnsOf(s) {
			if r.CasePattern != nil {
				c.CellNames = slices.DeleteFunc(slices.Clone(c.CellNames), func(cell string) bool { return !r.CasePattern.MatchString(cell) })
			}
			switch {
			case len(c.CellNames) == 0, c.BenchArgs != nil && r.LauncherRanks == 1:
				continue
			case c.IsKit() && r.LauncherRanks > 0:
				c.CellNames = []string{c.Name} // Skipped as a whole.
			}
			p.ColumnsByStack[i] = append(p.ColumnsByStack[i], c)
		}
	}
	return p
}

// IsIdle reports whether a stack reaches no other process of the launcher's ranks.
func (r *Request) IsIdle(s report.Stack) bool { return s.Alone() && r.LauncherRanks > 1 }

// LimitOf returns the limit of the cases of a column. It exceeds that of the library of the stack's transport.
func (r *Request) LimitOf(s report.Stack, c Column) time.Duration {
	limit := max(r.CaseLimit, r.libraryLimit(s))
	if c.Name == report.OpenCase {
		limit = max(limit, r.Suite.OpenLimit)
	}
	return limit
}

// libraryLimit returns the limit for a stack with a library: one and a half times that of the library, for a library
// that does not return, and the start of the processes.
func (r *Request) libraryLimit(s report.Stack) time.Duration {
	kind, name := s.Transport()
	if r.Suite.StartTime == 0 || r.Values == nil {
		return 0
	}
	value, _ := r.Values.Get(kind + "." + name + ".selftest_timeout")
	limit, err := time.ParseDuration(value.Text)
	if err != nil { // The transport has no library.
		return 0
	}
	return limit + limit/2 + r.Suite.StartTime
}

// IsBad reports whether a row is a failure that is not excluded.
func (r *Request) IsBad(s report.Stack, row report.Row) bool {
	r.Exclude.Apply(s, &row)
	return row.Status.Bad()
}

// Row returns the row of a case.
func (r *Request) Row(s report.Stack, c Column, cell string, status report.Status, reason string) report.Row {
	row := report.Row{Stack: s.Name, Provider: s.Provider, Case: cell, RankCount: c.ProcessCount, Status: status, Reason: reason}
	words, set, cases := []string{"ferry", "matrix"}, r.SetParams, "^"+regexp.QuoteMeta(cell)+"$"
	switch {
	case r.LauncherRanks > 0 && c.IsKit():
		cases = "^" + c.Name + "/"
	case r.LauncherRanks > 0:
		words = []string{"ferry", "run", "-n", fmt.Sprint(r.LauncherRanks), "ferry", "matrix", "--job"}
	case c.BenchArgs != nil:
		words, set, cases = append([]string{"ferry", "bench"}, c.BenchArgs...), slices.Concat(set, s.SetParams), ""
	case strings.HasPrefix(c.Name, "conform/") && !s.Alone():
		words = append(words, "--ranks", fmt.Sprint(c.ProcessCount))
	}
	if cases != "" {
		words = slices.Concat(words, []string{"--components", s.Name, "--cases", cases, "--suite", r.Suite.Name}, r.CommandFlags)
	}
	for _, x := range set {
		words = append(words, "--set", x)
	}
	row.Command = shellescape.QuoteCommand(words)
	return row
}

// Components selects the stacks that match one of the patterns, or all others.
type Components struct {
	patterns  []string
	isNegated bool
}

// hasName reports whether a stack is selected by its name, not by a pattern.
func (c *Components) hasName(stack string) bool {
	return c != nil && !c.isNegated && slices.Contains(c.patterns, stack)
}

// providersOf returns the providers of a stack that are selected by name.
func (c *Components) providersOf(stack string) (providers []string) {
	if c == nil || c.isNegated {
		return nil
	}
	for _, p := range c.patterns {
		if name, ok := strings.CutPrefix(p, stack+" "); ok && !strings.ContainsAny(name, `*?[\`) {
			providers = append(providers, name)
		}
	}
	return providers
}

// ParseComponents parses a list such as "ob1+shm,cm+ofi*" or "^cm*" with the patterns of path.Match.
func ParseComponents(list string) (*Components, error) {
	text, exclude := strings.CutPrefix(strings.TrimSpace(list), "^")
	c := &Components{isNegated: exclude}
	for p := range strings.SplitSeq(text, ",") {
		p = strings.TrimSpace(p)
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return nil, fmt.Errorf("%w: %q: %q is neither the name of a stack nor a pattern", framework.ErrConfig, list, p)
		}
		c.patterns = append(c.patterns, p)
	}
	return c, nil
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // ParseComponents has checked the pattern.
	return ok || pattern == name
}

// selectStacks returns the selected stacks in their order. A pattern without a match is an error that names the
// nearest stack.
func (c *Components) selectStacks(stacks []report.Stack) ([]report.Stack, error) {
	var names []string
	for _, s := range stacks {
		names = append(names, s.Name)
	}
	for _, p := range c.patterns {
		if !slices.ContainsFunc(names, func(n string) bool { return matches(p, n) }) {
			return nil, fmt.Errorf("%w: no stack is called %q; the nearest is %q; the stacks are %s", framework.ErrConfig, p, framework.Nearest(p, names), strings.Join(names, ", "))
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(stacks), func(s report.Stack) bool { return !c.Includes(s.Name) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: every stack is excluded: %s", framework.ErrConfig, strings.Join(names, ", "))
	}
	return chosen, nil
}

// Includes reports whether a stack is selected. A nil *Components includes all.
func (c *Components) Includes(name string) bool {
	return c == nil || slices.ContainsFunc(c.patterns, func(p string) bool { return matches(p, name) }) != c.isNegated
}

// FilterReport returns the part of a report about the selected stacks.
func (c *Components) FilterReport(r *report.Report) *report.Report {
	part := *r
	part.Stacks = slices.DeleteFunc(slices.Clone(r.Stacks), func(s report.Stack) bool { return !c.Includes(s.Name) })
	part.Rows = slices.DeleteFunc(slices.Clone(r.Rows), func(row report.Row) bool { return !c.Includes(row.Stack) })
	return &part
}

// canMatch reports whether stacks with that prefix have to be surveyed, which is slow. They have to if one could be
// selected, or if a pattern matches none of the known stacks, whose nearest name is then needed.
func (c *Components) canMatch(prefix string, known []report.Stack) bool {
	return c.isNegated || slices.ContainsFunc(c.patterns, func(p string) bool {
		plain := p
		if i := strings.IndexAny(p, `*?[\`); i >= 0 {
			plain = p[:i]
		}
		return strings.HasPrefix(plain, prefix) || strings.HasPrefix(prefix, plain) && plain != p ||
			!slices.ContainsFunc(known, func(s report.Stack) bool { return matches(p, s.Name) })
	})
}

// A Record collects the rows of a plan. Its methods may be called concurrently.
type Record struct {
	*Plan
	// Report is the report without rows. The runner of a stack updates the stack's entry.
	Report *report.Report

	observer report.Observer
	beganAt  time.Time
	// Guards rowByCell, and serializes calls of observer.
	mu        sync.Mutex
	rowByCell map[[2]string]report.Row
}

// Begin returns a new record and notifies the observer, which may be nil.
func (p *Plan) Begin(o report.Observer) *Record {
	r := &Record{Plan: p, observer: o, beganAt: time.Now(), rowByCell: map[[2]string]report.Row{}}
	r.Report = &report.Report{Suite: p.Suite.Name, StartedAt: r.beganAt.UTC().Truncate(time.Second), Machine: report.ThisMachine(), Stacks: slices.Clone(p.Stacks)}
	if o != nil {
		counts := map[string]int{}
		for i, s := range p.Stacks {
			counts[s.Name] = len(p.Cells(i))
		}
		o.Begin(slices.Clone(p.Stacks), counts)
	}
	return r
}

// BeginCase notifies the observer that a case has begun.
func (r *Record) BeginCase(s report.Stack, cell string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observer != nil {
		r.observer.Running(s.Name, cell)
	}
}

// AddRow applies the exclusions to a row, adds it, and returns it as it is in the report.
func (r *Record) AddRow(s report.Stack, row report.Row) report.Row {
	r.Exclude.Apply(s, &row)
	if s.IsRequired && row.Case == report.OpenCase && row.Status.Absent() {
		row.Status, row.Reason = report.Fail, fmt.Sprintf("it was asked for by name, and is %s: %s", row.Status, row.Reason)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rowByCell[[2]string{row.Stack, row.Case}] = row
	if r.observer != nil {
		r.observer.Done(row)
	}
	return row
}

// Complete returns the report of all rows so far. partial is the reason of an early end, or "". A stack that cannot
// be opened has one row.
func (r *Record) Complete(partial string) *report.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := *r.Report
	out.EndReason = partial
	for i, s := range out.Stacks {
		open, hasOpen := r.rowByCell[[2]string{s.Name, report.OpenCase}]
		for _, c := range r.ColumnsByStack[i] {
			for _, cell := range c.CellNames {
				row, ok := r.rowByCell[[2]string{s.Name, cell}]
				switch {
				case ok:
					out.Rows = append(out.Rows, row)
				case partial != "" && (!hasOpen || open.Status == report.Pass):
					out.Rows = append(out.Rows, r.Row(s, c, cell, report.Skip, "not run: "+partial))
				}
			}
		}
	}
	out.Machine.Libraries = report.Libraries(out.Stacks)
	out.Seconds = time.Since(r.beganAt).Seconds()
	return &out
}
