package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Comparison is what has changed since an earlier report. A nil *Comparison is
// one that nobody asked for.
type Comparison struct {
	Base    string  // when and where the earlier report was made
	Differs string  // what is not the same there, which makes it hard to compare; empty if nothing
	Factor  float64 // from which on slower counts; 0: speed was not compared

	NewlyFailing []Change
	NewlyPassing []Change
	Slower       []Slowdown
	Gone, New    []string // stacks that only the earlier report has, or only this one
}

// A Change is a case whose outcome is another one now.
type Change struct {
	Row    Row    // as it is now
	Before Status // empty if there was no such case
}

// A Slowdown is a benchmark that takes longer at some sizes.
type Slowdown struct {
	Stack, Case string
	Before, Now Point // where the difference is largest
	Factor      float64
	Sizes, Of   int // how many sizes are slower than allowed, and of how many
}

// Compare says what has changed from base to now. Newly failing is what fails, or
// does not end, and did not before; what passed and is not run, because its stack is
// given up; and a stack that was there and is not any more. Figures are compared
// where slower is above 1: those worse by more than that factor are listed.
func Compare(base, now *Report, slower float64) *Comparison {
	c := &Comparison{Base: base.title(), Differs: differences(base.Machine, now.Machine), Factor: slower}
	type key struct{ stack, name string }
	before := map[key]Row{}
	for _, row := range base.Rows {
		before[key{row.Stack, row.Case}] = row
	}
	for _, row := range now.Rows {
		old := before[key{row.Stack, row.Case}]
		switch {
		case row.Status.Bad() && !old.Status.Bad(), (row.Status == Unavailable || row.GivenUp) && old.Status == Pass:
			c.NewlyFailing = append(c.NewlyFailing, Change{row, old.Status})
		case row.Status == Pass && (old.Status.Bad() || old.Status == Unavailable || old.GivenUp || old.Status == Skip && old.Excluded != ""):
			c.NewlyPassing = append(c.NewlyPassing, Change{row, old.Status})
		case row.Status == Pass && old.Status == Pass && slower > 1:
			if s, is := slowdown(old, row, slower); is {
				c.Slower = append(c.Slower, s)
			}
		}
	}
	then, today := base.stackNames(), now.stackNames()
	c.Gone = without(then, today)
	c.New = without(today, then)
	return c
}

// Failed says whether the comparison alone is a reason not to be content.
func (c *Comparison) Failed() bool {
	return c != nil && len(c.NewlyFailing)+len(c.Slower) > 0
}

// Verdict is a sentence with a space before it, for behind the report's; empty if
// the comparison has not failed.
func (c *Comparison) Verdict() string {
	var worse []string
	if c != nil && len(c.NewlyFailing) > 0 {
		worse = append(worse, Plural(len(c.NewlyFailing), "case")+" newly failing")
	}
	if c != nil && len(c.Slower) > 0 {
		worse = append(worse, Plural(len(c.Slower), "benchmark")+" slower")
	}
	if worse == nil {
		return ""
	}
	return " Worse than the baseline: " + strings.Join(worse, ", ") + "."
}

// slowdown compares the figures of one benchmark size by size.
func slowdown(old, now Row, factor float64) (Slowdown, bool) {
	s := Slowdown{Stack: now.Stack, Case: now.Case}
	for _, p := range now.Points {
		i := slices.IndexFunc(old.Points, func(o Point) bool { return o.Size == p.Size && o.Unit == p.Unit })
		if i < 0 || old.Points[i].Value == 0 || p.Value == 0 {
			continue
		}
		s.Of++
		f := p.Value / old.Points[i].Value
		if p.Unit != "us" { // of rates and bandwidths less is worse
			f = 1 / f
		}
		if f > factor {
			s.Sizes++
		}
		if f > s.Factor {
			s.Factor, s.Before, s.Now = f, old.Points[i], p
		}
	}
	return s, s.Sizes > 0
}

// title says when and where a report was made.
func (r *Report) title() string {
	s := r.Suite
	if r.Machine.Host != "" {
		s += " on " + r.Machine.Host
	}
	if !r.Started.IsZero() {
		s += " of " + r.Started.UTC().Format(time.DateTime) + " UTC"
	}
	if r.Partial != "" {
		s += ", not complete"
	}
	return strings.TrimSpace(s)
}

// differences lists what makes two machines hard to compare.
func differences(a, b Machine) string {
	var out []string
	add := func(what, x, y string) {
		if x != y {
			out = append(out, fmt.Sprintf("%s was %q and is %q", what, x, y))
		}
	}
	add("host", a.Host, b.Host)
	add("CPU", a.CPU, b.CPU)
	if a.Cores != b.Cores {
		add("cores", fmt.Sprint(a.Cores), fmt.Sprint(b.Cores))
	}
	add("kernel", a.Kernel, b.Kernel)
	add("ferry", a.Ferry, b.Ferry)
	for _, now := range b.Libraries {
		// A run that left stacks out may not have looked for their libraries.
		if i := slices.IndexFunc(a.Libraries, func(l Library) bool { return l.Name == now.Name }); i >= 0 {
			add(now.Name, a.Libraries[i].Version, now.Version)
		}
	}
	return strings.Join(out, "; ")
}

// stackNames are the stacks that the report knows.
func (r *Report) stackNames() []string {
	var names []string
	for _, l := range r.Table().Lines {
		names = append(names, l.Stack.Name)
	}
	return names
}

// without returns those of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
