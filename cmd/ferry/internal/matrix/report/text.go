package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/ferrympi/ferry/internal/text"
)

// Printable returns text without effect on a terminal, a page or its reader. Unprintable characters other than
// newlines and tabs, and invalid UTF-8, are escaped. Names and outputs may come from crashed programs.
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

// Plural returns a number with its unit, such as "1 case" or "2 cases".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// WriteText writes the table, each row that did not pass with its reason, the changes since the baseline, and the
// verdict last.
func WriteText(w io.Writer, r *Report, c *Comparison, look Look) error {
	t := textWriter{Look: look}
	t.table(r.Table())
	t.groups(r.Groups())
	for _, row := range r.Obsolete() {
		t.wrap("", fmt.Sprintf("excluded, but passes: remove the exclusion of %s  %s (%s)", oneLine(row.Stack), oneLine(row.Case), oneLine(row.ExclusionReason)))
	}
	for _, n := range r.Notes {
		t.wrap("", "note: "+oneLine(n))
	}
	t.gap()
	if c != nil {
		t.wrap("", fmt.Sprintf("since the baseline (%s):", oneLine(c.BaseTitle)))
		if c.MachineDifferences != "" {
			t.wrap("    ", "hard to compare: "+oneLine(c.MachineDifferences))
		}
		for _, line := range c.Lines() {
			t.wrap("    ", oneLine(line))
		}
		t.gap()
	}
	verdict := textWriter{Look: t.Look}
	verdict.wrap("", r.Verdict()+c.Verdict())
	t.linef("%s", t.bold(strings.TrimSuffix(verdict.b.String(), "\n")))
	_, err := io.WriteString(w, t.b.String())
	return err
}

// textWriter collects lines.
type textWriter struct {
	Look
	b strings.Builder
}

func (t *textWriter) linef(format string, args ...any) { fmt.Fprintf(&t.b, format+"\n", args...) }

// wrap adds a paragraph.
func (t *textWriter) wrap(indent, paragraph string) {
	if t.Width == 0 {
		t.linef("%s%s", indent, paragraph)
		return
	}
	text.Wrap(&t.b, t.Width, indent, paragraph)
}

// gap ends a part, if there was one.
func (t *textWriter) gap() {
	if text := t.b.String(); text != "" && !strings.HasSuffix(text, "\n\n") {
		t.linef("")
	}
}

// legend describes the columns of the table.
const legend = "Columns: passed cases of each kit, 35/37! if 2 of 37 failed or were not run after the stack was given up; latency and rate of the shortest message; best bandwidth."

// table writes a line for each stack that was opened. Those that were not are
// listed with their reasons below.
func (t *textWriter) table(table *Table) {
	g := grid{{fields: table.heads("stack")}}
	var waiting []string
	for _, l := range table.Lines {
		switch {
		case l.Missing() == "":
			g = append(g, entry{fields: l.fields(table, oneLine(l.Stack.Name)), state: l.Counts.State()})
		case l.Counts.Total() == 0 && l.Stack.AbsentReason == "":
			waiting = append(waiting, oneLine(l.Stack.Name))
		}
	}
	if len(g) == 1 {
		return
	}
	for _, line := range g.wrapped(t.Look) {
		t.linef("%s", line)
	}
	t.wrap("", legend)
	if len(waiting) > 0 {
		t.wrap("", "Not run: "+strings.Join(waiting, ", "))
	}
	t.gap()
}

// mostListed bounds the cases that a line lists; all are in the JSON report and on the page.
const mostListed = 3

// groups writes the rows that did not pass by reason. Failures come with their commands. Of others, stacks with the
// same cases share an entry.
func (t *textWriter) groups(groups []Group) {
	for _, g := range groups {
		lines := strings.Split(strings.TrimSpace(Printable(g.Reason)), "\n")
		t.wrap("", t.paint(g.Status, string(g.Status))+": "+lines[0])
		for _, line := range lines[1:] {
			t.wrap("  ", line)
		}
		if g.Status.Bad() {
			t.failures(g.Rows)
		} else {
			t.skips(g.Rows)
		}
	}
	t.gap()
}

func (t *textWriter) failures(rows []Row) {
	for _, row := range rows {
		t.wrap("    ", oneLine(row.Stack)+"  "+oneLine(row.Case))
		if row.Command != "" {
			t.linef("        %s", oneLine(row.Command)) // In one line, for copying.
		}
	}
}

func (t *textWriter) skips(rows []Row) {
	var stacks []string
	cases := map[string][]string{}
	for _, row := range rows {
		stack := oneLine(row.Stack)
		if cases[stack] == nil {
			stacks = append(stacks, stack)
		}
		cases[stack] = append(cases[stack], oneLine(row.Case))
	}
	var lists []string
	with := map[string][]string{} // Stacks by their list of cases.
	for _, s := range stacks {
		list := listed(cases[s])
		if with[list] == nil {
			lists = append(lists, list)
		}
		with[list] = append(with[list], s)
	}
	for _, list := range lists {
		t.wrap("    ", strings.Join(with[list], ", ")+list)
	}
}

// listed is a list of cases behind names of stacks. OpenCase alone needs no list.
func listed(cases []string) string {
	if slices.Equal(cases, []string{OpenCase}) {
		return ""
	}
	more := ""
	if n := len(cases) - mostListed; n > 1 {
		cases, more = cases[:mostListed], fmt.Sprintf(" and %s", Plural(n, "more case"))
	}
	return ": " + strings.Join(cases, ", ") + more
}

// A grid is a table in lines of fields, its heads first.
type grid []entry

// An entry is a line of a grid, painted if its state is bad.
type entry struct {
	fields []string
	state  Status
}

// wrapped returns the grid's lines, with columns below one another, of at most the width of the look.
func (g grid) wrapped(look Look) (all []string) {
	if look.Width == 0 {
		return g.lines(look, 0)
	}
	var rows [][]string
	for _, e := range g {
		rows = append(rows, e.fields)
	}
	for i, lines := range text.TableLines(look.Width, rows) {
		for _, line := range lines {
			all = append(all, look.row(i == 0, g[i].state, line))
		}
	}
	return all
}

// row is a line of a grid in the look of its state.
func (l Look) row(isHead bool, state Status, line string) string {
	switch {
	case isHead:
		return l.bold(line)
	case state.Bad():
		return l.paint(state, line)
	}
	return line
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
		lines[i] = look.row(i == 0, g[i].state, cut(strings.TrimRight(line, " "), width))
	}
	return lines
}
