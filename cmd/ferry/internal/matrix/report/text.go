package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Printable returns text that does nothing to a terminal, a page or its reader:
// what is neither printable nor a line's end or a tab is written as an escape, bytes
// that are no UTF-8 too. Names and outputs come from programs that may have been
// dying.
func Printable(text string) string {
	var b strings.Builder
	for i, n := 0, 0; i < len(text); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\n' || r == '\t' || strconv.IsPrint(r) && (r != utf8.RuneError || n > 1):
			b.WriteString(text[i : i+n])
		case r == '\r' && strings.HasPrefix(text[i:], "\r\n"):
		default:
			quoted := strconv.Quote(text[i : i+n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// oneLine is Printable for where only one line fits.
func oneLine(text string) string { return strings.Join(strings.Fields(Printable(text)), " ") }

// Plural is a number with what it counts: "1 case", "2 cases".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// WriteText writes the report for readers: the table, each row that did not pass
// with its reason, what has changed since the baseline, and the verdict last.
func WriteText(w io.Writer, r *Report, c *Comparison, look Look) error {
	t := textWriter{Look: look}
	t.table(r.Table())
	t.groups(r.Groups())
	for _, row := range r.Obsolete() {
		t.linef("excluded, but passes: remove the exclusion of %s  %s (%s)", oneLine(row.Stack), oneLine(row.Case), oneLine(row.Excluded))
	}
	for _, n := range r.Notes {
		t.linef("note: %s", oneLine(n))
	}
	t.gap()
	if c != nil {
		t.linef("since the baseline (%s):", oneLine(c.Base))
		if c.Differs != "" {
			t.linef("    hard to compare: %s", oneLine(c.Differs))
		}
		for _, line := range c.Lines() {
			t.linef("    %s", oneLine(line))
		}
		t.gap()
	}
	t.linef("%s", t.bold(r.Verdict()+c.Verdict()))
	_, err := io.WriteString(w, t.b.String())
	return err
}

// textWriter collects lines.
type textWriter struct {
	Look
	b strings.Builder
}

func (t *textWriter) linef(format string, args ...any) { fmt.Fprintf(&t.b, format+"\n", args...) }

// gap ends a part, if there was one.
func (t *textWriter) gap() {
	if text := t.b.String(); text != "" && !strings.HasSuffix(text, "\n\n") {
		t.linef("")
	}
}

// table writes a line for each stack that was opened. Those that were not are
// listed with their reasons below.
func (t *textWriter) table(table *Table) {
	g := grid{{fields: table.heads("stack")}}
	var waiting []string
	for _, l := range table.Lines {
		switch {
		case l.Missing() == "":
			g = append(g, entry{fields: l.fields(table, oneLine(l.Stack.Name)), state: l.Counts.State()})
		case l.Counts.Total() == 0 && l.Stack.Reason == "":
			waiting = append(waiting, oneLine(l.Stack.Name))
		}
	}
	if len(g) == 1 {
		return
	}
	for _, line := range g.lines(t.Look, 0) {
		t.linef("%s", line)
	}
	t.linef("Numbers are cases that passed; 35/37! means that 2 of 37 failed, or were not run because the stack was given up. Figures are those of the shortest message, or the best bandwidth.")
	if len(waiting) > 0 {
		t.linef("Not run: %s", strings.Join(waiting, ", "))
	}
	t.gap()
}

// groups writes what did not pass. Failures come with their commands; what was
// skipped for the same reason stands together.
func (t *textWriter) groups(groups []Group) {
	for _, g := range groups {
		// The further lines of a reason stand below the first.
		t.linef("%s: %s", t.paint(g.Status, string(g.Status)), strings.ReplaceAll(strings.TrimSpace(Printable(g.Reason)), "\n", "\n  "))
		var stacks []string
		cases := map[string][]string{}
		for _, row := range g.Rows {
			if g.Status.Bad() {
				t.linef("    %s  %s", oneLine(row.Stack), oneLine(row.Case))
				if row.Command != "" {
					t.linef("        %s", oneLine(row.Command))
				}
				continue
			}
			if cases[row.Stack] == nil {
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
	t.gap()
}

// A grid is a table in lines of fields, its heads first.
type grid []entry

// An entry is a line of a grid, painted if its state is bad.
type entry struct {
	fields []string
	state  Status
}

// heads are those of the table's columns behind some others.
func (t *Table) heads(first ...string) []string {
	for _, c := range t.Columns {
		first = append(first, oneLine(c))
	}
	return first
}

// fields are those of the line's cells behind some others.
func (l Line) fields(t *Table, first ...string) []string {
	for _, c := range t.Columns {
		first = append(first, l.Cells[c].String())
	}
	return first
}

// lines are the grid's, with columns below one another, cut to a width if that is not 0.
func (g grid) lines(look Look, width int) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range g {
		fmt.Fprintln(w, strings.Join(e.fields, "\t"))
	}
	_ = w.Flush() // a Builder takes all
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, line := range lines {
		line = cut(strings.TrimRight(line, " "), width)
		switch {
		case i == 0:
			line = look.bold(line)
		case g[i].state.Bad():
			line = look.paint(g[i].state, line)
		}
		lines[i] = line
	}
	return lines
}
