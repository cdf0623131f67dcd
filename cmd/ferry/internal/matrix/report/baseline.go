package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Comparison has the changes since an earlier report. A nil *Comparison is empty.
type Comparison struct {
	// Time and machine of the earlier report.
	BaseTitle string
	// May be empty.
	MachineDifferences string
	// That of --slower; 0 if speed was not compared.
	SlowerFactor float64

	// Cases with both statuses.
	NewlyFailing, NewlyPassing []string
	SlowerBenches              []Slowdown
	// Stacks in only one of the reports.
	BaseOnlyStacks, NewStacks []string
}

// A Slowdown is a benchmark that is slower at some sizes.
type Slowdown struct {
	Stack, Case string
	// At the largest difference.
	BasePoint, NewPoint Point
	Factor              float64
	// Numbers of message sizes.
	SlowerSizes, ComparedSizes int
}

// Compare returns the changes from base to now. Newly failing are cases that fail or do not end and did not before,
// cases that passed and are not run because of Row.IsAbandoned, and missing stacks. With slower above 1, figures that are
// worse by more than that factor are listed.
func Compare(base, now *Report, slower float64) *Comparison {
	c := &Comparison{BaseTitle: base.title(), MachineDifferences: differences(base.Machine, now.Machine), SlowerFactor: slower}
	before := map[[2]string]Row{}
	for _, row := range base.Rows {
		before[[2]string{row.Stack, row.Case}] = row
	}
	for _, row := range now.Rows {
		old := before[[2]string{row.Stack, row.Case}]
		was := cmp.Or(string(old.Status), "not there")
		switch {
		case row.Status.Bad() && !old.Status.Bad(), (row.Status.Absent() || row.IsAbandoned) && old.Status == Pass:
			c.NewlyFailing = append(c.NewlyFailing, fmt.Sprintf("%s  %s: %s (was: %s): %s", row.Stack, row.Case, row.Status, was, row.Reason))
		case row.Status == Pass && (old.Status.Bad() || old.Status.Absent() || old.IsAbandoned || old.Status == Skip && old.ExclusionReason != ""):
			c.NewlyPassing = append(c.NewlyPassing, fmt.Sprintf("%s  %s (was: %s)", row.Stack, row.Case, was))
		case row.Status == Pass && old.Status == Pass && slower > 1:
			if s, is := slowdown(old, row, slower); is {
				c.SlowerBenches = append(c.SlowerBenches, s)
			}
		}
	}
	c.BaseOnlyStacks, c.NewStacks = base.stacksWithout(now), now.stacksWithout(base)
	return c
}

// Failed reports whether the comparison alone is a failure.
func (c *Comparison) Failed() bool {
	return c != nil && len(c.NewlyFailing)+len(c.SlowerBenches) > 0
}

// Verdict summarizes a failed comparison in a sentence after a space, or returns "".
func (c *Comparison) Verdict() string {
	var worse []string
	if c != nil && len(c.NewlyFailing) > 0 {
		worse = append(worse, Plural(len(c.NewlyFailing), "case")+" newly failing")
	}
	if c != nil && len(c.SlowerBenches) > 0 {
		worse = append(worse, Plural(len(c.SlowerBenches), "benchmark")+" slower")
	}
	if worse == nil {
		return ""
	}
	return " Worse than the baseline: " + strings.Join(worse, ", ") + "."
}

// slowdown compares the figures of one benchmark by size.
func slowdown(old, now Row, factor float64) (Slowdown, bool) {
	s := Slowdown{Stack: now.Stack, Case: now.Case}
	for _, p := range now.Points {
		i := slices.IndexFunc(old.Points, func(o Point) bool { return o.Size == p.Size && o.Unit == p.Unit })
		if i < 0 || old.Points[i].Value == 0 || p.Value == 0 {
			continue
		}
		s.ComparedSizes++
		f := p.Value / old.Points[i].Value
		if p.Unit != "us" { // of rates and bandwidths less is worse
			f = 1 / f
		}
		if f > factor {
			s.SlowerSizes++
		}
		if f > s.Factor {
			s.Factor, s.BasePoint, s.NewPoint = f, old.Points[i], p
		}
	}
	return s, s.SlowerSizes > 0
}

// title returns the time and the machine of a report.
func (r *Report) title() string {
	s := r.Suite
	if r.Machine.Host != "" {
		s += " on " + r.Machine.Host
	}
	if !r.StartedAt.IsZero() {
		s += " of " + r.StartedAt.UTC().Format(time.DateTime) + " UTC"
	}
	if r.EndReason != "" {
		s += ", not complete"
	}
	return strings.TrimSpace(s)
}

// differences lists the differences of two machines that affect a comparison.
func differences(a, b Machine) string {
	pairs := [][3]string{
		{"host", a.Host, b.Host}, {"CPU", a.CPU, b.CPU}, {"cores", fmt.Sprint(a.CoreCount), fmt.Sprint(b.CoreCount)},
		{"kernel", a.Kernel, b.Kernel}, {"ferry", a.FerryVersion, b.FerryVersion},
	}
	for _, now := range b.Libraries {
		// A run that left stacks out may not have looked for their libraries.
		if i := slices.IndexFunc(a.Libraries, func(l Library) bool { return l.Name == now.Name }); i >= 0 {
			pairs = append(pairs, [3]string{now.Name, a.Libraries[i].Version, now.Version})
		}
	}
	var out []string
	for _, p := range pairs {
		if p[1] != p[2] {
			out = append(out, fmt.Sprintf("%s was %q and is %q", p[0], p[1], p[2]))
		}
	}
	return strings.Join(out, "; ")
}

// stacksWithout names the stacks that the report has, and another has not.
func (r *Report) stacksWithout(other *Report) []string {
	known := map[string]bool{}
	for _, l := range other.Table().Lines {
		known[l.Stack.Name] = true
	}
	var names []string
	for _, l := range r.Table().Lines {
		if !known[l.Stack.Name] {
			names = append(names, l.Stack.Name)
		}
	}
	return names
}

// Lines describes the changes, the worst first, or returns one line if there are none.
func (c *Comparison) Lines() []string {
	var lines []string
	for _, x := range c.NewlyFailing {
		lines = append(lines, "newly failing: "+x)
	}
	for _, s := range c.SlowerBenches {
		lines = append(lines, fmt.Sprintf("slower: %s  %s: %s at %d B, was %s (%.2f times); more than %.2f times at %d of %s",
			s.Stack, s.Case, s.NewPoint.Figure(), s.NewPoint.Size, s.BasePoint.Figure(), s.Factor, c.SlowerFactor, s.SlowerSizes, Plural(s.ComparedSizes, "size")))
	}
	for _, x := range c.NewlyPassing {
		lines = append(lines, "newly passing: "+x)
	}
	if len(c.BaseOnlyStacks) > 0 {
		lines = append(lines, "only in the baseline: "+strings.Join(c.BaseOnlyStacks, ", "))
	}
	if len(c.NewStacks) > 0 {
		lines = append(lines, "not in the baseline: "+strings.Join(c.NewStacks, ", "))
	}
	if len(lines) == 0 {
		lines = append(lines, "nothing has changed")
	}
	return lines
}
