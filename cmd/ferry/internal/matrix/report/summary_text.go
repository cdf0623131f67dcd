package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// WriteText writes the report for readers: the table, each row that did not pass
// with its reason, what has changed since the baseline, and the verdict last.
func WriteText(w io.Writer, r *Report, c *Comparison, look Look) error {
	t := textWriter{Look: look}
	t.table(r.Table())
	t.groups(r.Groups())
	t.notes(r.Obsolete(), r.Notes)
	t.comparison(c)
	t.linef("%s", t.bold(r.Verdict()+c.Verdict()))
	_, err := io.WriteString(w, t.b.String())
	return err
}

// textWriter collects lines.
type textWriter struct {
	Look
	b strings.Builder
}

func (t *textWriter) linef(format string, args ...any) {
	fmt.Fprintf(&t.b, strings.TrimRight(format, " ")+"\n", args...)
}

// table writes a line for each stack that was opened. Those that were not are
// listed with their reasons below.
func (t *textWriter) table(table *Table) {
	heads := []string{"stack"}
	for _, c := range table.Columns {
		heads = append(heads, oneLine(c))
	}
	grid := [][]string{heads}
	var worst []Status
	var waiting []string
	for _, l := range table.Lines {
		if l.Missing() != "" {
			if l.Counts.Total() == 0 && l.Stack.Reason == "" {
				waiting = append(waiting, oneLine(l.Stack.Name))
			}
			continue
		}
		fields := []string{oneLine(l.Stack.Name)}
		for _, c := range l.Cells {
			fields = append(fields, c.String())
		}
		grid = append(grid, fields)
		worst = append(worst, l.Counts.Worst())
	}
	if len(grid) == 1 {
		return
	}
	for i, line := range align(grid) {
		switch {
		case i == 0:
			line = t.bold(line)
		case worst[i-1].Bad():
			line = t.paint(worst[i-1], line)
		}
		t.linef("%s", line)
	}
	t.linef("Numbers are cases that passed; 35/37! means that of 37 two did not, or were not run because the stack was given up. Figures are of the shortest message, or the best bandwidth.")
	if len(waiting) > 0 {
		t.linef("Not run: %s", strings.Join(waiting, ", "))
	}
	t.linef("")
}

// groups writes what did not pass. Failures come with their commands; what was
// skipped for the same reason stands together.
func (t *textWriter) groups(groups []Group) {
	for _, g := range groups {
		t.linef("%s: %s", t.paint(g.Status, string(g.Status)), indent(g.Reason))
		if g.Status.Bad() {
			for _, row := range g.Rows {
				t.linef("    %s  %s", oneLine(row.Stack), oneLine(row.Case))
				if row.Command != "" {
					t.linef("        %s", oneLine(row.Command))
				}
			}
			continue
		}
		var stacks []string
		cases := map[string][]string{}
		for _, row := range g.Rows {
			if !slices.Contains(stacks, row.Stack) {
				stacks = append(stacks, row.Stack)
			}
			cases[row.Stack] = append(cases[row.Stack], oneLine(row.Case))
		}
		for _, s := range stacks {
			if slices.Equal(cases[s], []string{OpenCase}) {
				t.linef("    %s", oneLine(s))
				continue
			}
			t.linef("    %s  %s", oneLine(s), strings.Join(cases[s], ", "))
		}
	}
	if len(groups) > 0 {
		t.linef("")
	}
}

// notes writes which exclusions have had their day, and the run's remarks.
func (t *textWriter) notes(obsolete []Row, notes []string) {
	for _, row := range obsolete {
		t.linef("excluded, but passes: remove the exclusion of %s  %s (%s)", oneLine(row.Stack), oneLine(row.Case), oneLine(row.Excluded))
	}
	for _, n := range notes {
		t.linef("note: %s", oneLine(n))
	}
	if len(obsolete)+len(notes) > 0 {
		t.linef("")
	}
}

// comparison writes what has changed.
func (t *textWriter) comparison(c *Comparison) {
	if c == nil {
		return
	}
	t.linef("since the baseline (%s):", oneLine(c.Base))
	if c.Differs != "" {
		t.linef("    hard to compare: %s", oneLine(c.Differs))
	}
	for _, line := range c.Lines() {
		t.linef("    %s", oneLine(line))
	}
	t.linef("")
}

// Lines says in words what has changed, the worst first; one line if nothing has.
func (c *Comparison) Lines() []string {
	var lines []string
	for _, x := range c.NewlyFailing {
		lines = append(lines, fmt.Sprintf("newly failing: %s  %s: %s (was: %s): %s", x.Row.Stack, x.Row.Case, x.Row.Status, was(x.Before), x.Row.Reason))
	}
	for _, s := range c.Slower {
		lines = append(lines, fmt.Sprintf("slower: %s  %s: %s at %d B, was %s (%.2f times); more than %.2f times at %d of %s",
			s.Stack, s.Case, s.Now.Figure(), s.Now.Size, s.Before.Figure(), s.Factor, c.Factor, s.Sizes, Plural(s.Of, "size")))
	}
	for _, x := range c.NewlyPassing {
		lines = append(lines, fmt.Sprintf("newly passing: %s  %s (was: %s)", x.Row.Stack, x.Row.Case, was(x.Before)))
	}
	if len(c.Gone) > 0 {
		lines = append(lines, "only in the baseline: "+strings.Join(c.Gone, ", "))
	}
	if len(c.New) > 0 {
		lines = append(lines, "not in the baseline: "+strings.Join(c.New, ", "))
	}
	if len(lines) == 0 {
		lines = append(lines, "nothing has changed")
	}
	return lines
}

func was(s Status) string {
	if s == "" {
		return "not there"
	}
	return string(s)
}

// indent lets the further lines of a reason stand below the first.
func indent(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(Printable(text)), "\n", "\n  ")
}

// align makes lines of fields, so that columns stand below one another, two
// spaces apart.
func align(grid [][]string) []string {
	var widths []int
	for _, line := range grid {
		for i, field := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(field))
		}
	}
	var lines []string
	for _, line := range grid {
		var b strings.Builder
		for i, field := range line {
			b.WriteString(field)
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(field)+2))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}
