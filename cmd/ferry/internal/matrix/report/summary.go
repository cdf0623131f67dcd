package report

import (
	"fmt"
	"slices"
	"strings"
)

// Bad says that something is wrong, as opposed to not there or not asked for.
func (s Status) Bad() bool { return s == Fail || s == Timeout }

// Failed says whether the machine does not pass: a case failed or did not end
// that is not excluded, or was not run because its stack was given up.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Status.Bad() || row.GivenUp })
}

// Columns of a table of stacks, in the order in which they are shown. A case that
// belongs to none of them makes a column of its own behind these.
var columns = []string{"btltest", "mtltest", "pmltest", "conform", "latency", "rate", "bandwidth"}

// Column is the column that a case belongs to: its kit, or the name of its
// benchmark. OpenCase has none.
func Column(testCase string) string {
	kit, rest, _ := strings.Cut(testCase, "/")
	if kit == "bench" && rest != "" {
		return rest
	}
	return kit
}

// A Table is a report at a glance: a line for each stack, a cell for each kind of
// cases.
type Table struct {
	Columns []string
	Lines   []Line
	Counts  Counts // of all rows
	GivenUp int    // rows
}

// A Line is a stack. One that could not be opened has no cells, but the outcome of
// that.
type Line struct {
	Stack  Stack
	Open   Row    // of OpenCase; its Status is empty if the run ended before it
	Cells  []Cell // as Columns
	Counts Counts
	// GivenUp is how many rows the stack was given up before.
	GivenUp int
}

// A Cell is all cases of one kind on one stack.
type Cell struct {
	Counts  Counts
	GivenUp int // rows
	Rows    []Row
}

// State is the status that stands for the cell: a stack that was given up has not
// passed.
func (c Cell) State() Status {
	if s := c.Counts.State(); s != Pass || c.GivenUp == 0 {
		return s
	}
	return Skip
}

// Counts are numbers of rows by status.
type Counts map[Status]int

// Total is the number of rows.
func (c Counts) Total() (n int) {
	for _, k := range c {
		n += k
	}
	return n
}

// Bad is the number of those that failed or did not end.
func (c Counts) Bad() int { return c[Fail] + c[Timeout] }

// Worst is the worst status that occurs, or "" if there are no rows.
func (c Counts) Worst() Status {
	for _, s := range Statuses {
		if c[s] > 0 {
			return s
		}
	}
	return ""
}

// State is the status that stands for all: the worst if that is bad, else that
// they passed, if any did.
func (c Counts) State() Status {
	if s := c.Worst(); s.Bad() || c[Pass] == 0 {
		return s
	}
	return Pass
}

// Table sorts the report's rows into a table. Columns that nothing belongs to are
// left out.
func (r *Report) Table() *Table {
	t := &Table{Counts: Counts{}}
	used := map[string]bool{}
	for _, row := range r.Rows {
		t.Counts[row.Status]++
		if row.GivenUp {
			t.GivenUp++
		}
		used[Column(row.Case)] = true
	}
	for _, c := range columns {
		if used[c] {
			t.Columns = append(t.Columns, c)
		}
	}
	at := map[string]int{}
	line := func(s Stack) {
		at[s.Name] = len(t.Lines)
		t.Lines = append(t.Lines, Line{Stack: s, Counts: Counts{}})
	}
	for _, s := range r.Stacks {
		line(s)
	}
	for _, row := range r.Rows {
		if _, ok := at[row.Stack]; !ok {
			line(Stack{Name: row.Stack, Provider: row.Provider})
		}
		if c := Column(row.Case); c != OpenCase && !slices.Contains(t.Columns, c) {
			t.Columns = append(t.Columns, c)
		}
	}
	for i := range t.Lines {
		t.Lines[i].Cells = make([]Cell, len(t.Columns))
		for j := range t.Lines[i].Cells {
			t.Lines[i].Cells[j].Counts = Counts{}
		}
	}
	for _, row := range r.Rows {
		l := &t.Lines[at[row.Stack]]
		l.Counts[row.Status]++
		if row.Case == OpenCase {
			l.Open = row
			continue
		}
		cell := &l.Cells[slices.Index(t.Columns, Column(row.Case))]
		cell.Counts[row.Status]++
		cell.Rows = append(cell.Rows, row)
		if row.GivenUp {
			cell.GivenUp++
			l.GivenUp++
		}
	}
	return t
}

// Missing says why the stack has no cells, or "" if it was opened.
func (l *Line) Missing() string {
	switch {
	case l.Open.Status != "" && l.Open.Status != Pass:
		return fmt.Sprintf("%s: %s", l.Open.Status, l.Open.Reason)
	case l.Stack.Reason != "":
		return l.Stack.Missing()
	case l.Counts.Total() == 0:
		return "not run"
	}
	return ""
}

// String is the cell in few letters: the figure of a benchmark, or how many cases
// passed; "35/37!" if of 37 cases, those that were skipped for other reasons aside,
// two did not, or were not run because the stack was given up.
func (c Cell) String() string {
	of := c.Counts.Total() - c.Counts[Skip] - c.Counts[Unavailable] + c.GivenUp
	switch {
	case len(c.Rows) == 0:
		return ""
	case of == 0:
		return string(c.Counts.Worst())
	case c.Counts[Pass] < of:
		return fmt.Sprintf("%d/%d!", c.Counts[Pass], of)
	}
	if figure := c.figure(); figure != "" {
		return figure
	}
	return fmt.Sprint(c.Counts[Pass])
}

// figure is the one figure that stands for a benchmark: the shortest message's
// latency or rate, the best bandwidth.
func (c Cell) figure() string {
	if len(c.Rows) != 1 || len(c.Rows[0].Points) == 0 {
		return ""
	}
	best := c.Rows[0].Points[0]
	for _, p := range c.Rows[0].Points {
		if p.Unit == "MB/s" && p.Value > best.Value || p.Unit != "MB/s" && p.Size < best.Size {
			best = p
		}
	}
	return best.Figure()
}

// Figure is the value with its unit, to three digits.
func (p Point) Figure() string {
	value, unit := p.Value, p.Unit
	switch {
	case unit == "MB/s" && value >= 1000:
		value, unit = value/1000, "GB/s"
	case unit == "msg/s" && value >= 1e6:
		value, unit = value/1e6, "M/s"
	case unit == "msg/s" && value >= 1000:
		value, unit = value/1000, "k/s"
	case unit == "us" && value >= 1000:
		value, unit = value/1000, "ms"
	}
	switch {
	case value >= 100:
		return fmt.Sprintf("%.0f %s", value, unit)
	case value >= 10:
		return fmt.Sprintf("%.1f %s", value, unit)
	}
	return fmt.Sprintf("%.2f %s", value, unit)
}

// A Group is rows that have the same status for the same reason.
type Group struct {
	Status Status
	Reason string
	Rows   []Row
}

// Groups returns what did not pass, the worst first, and within a status in the
// order of the rows.
func (r *Report) Groups() []Group {
	type key struct{ status, reason string }
	at := map[key]int{}
	var groups []Group
	for _, row := range r.Rows {
		if row.Status == Pass {
			continue
		}
		k := key{string(row.Status), row.Reason}
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k] = i
			groups = append(groups, Group{Status: row.Status, Reason: row.Reason})
		}
		groups[i].Rows = append(groups[i].Rows, row)
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return a.order() - b.order() })
	return groups
}

// order is where a group stands: what was given up is as bad as what did not end.
func (g Group) order() int {
	if g.Rows[0].GivenUp {
		return slices.Index(Statuses, Timeout)
	}
	return slices.Index(Statuses, g.Status)
}

// Obsolete returns the rows that passed although they are excluded.
func (r *Report) Obsolete() []Row {
	var rows []Row
	for _, row := range r.Rows {
		if row.Status == Pass && row.Excluded != "" {
			rows = append(rows, row)
		}
	}
	return rows
}

// Verdict is the report in a sentence or two.
func (r *Report) Verdict() string {
	t := r.Table()
	present, missing, hurt, waiting := 0, 0, 0, 0
	for _, l := range t.Lines {
		switch {
		case l.Counts.Bad()+l.GivenUp > 0:
			hurt++
			present++
		case l.Open.Status == Unavailable || l.Stack.Reason != "":
			missing++
		case l.Counts.Total() == 0:
			waiting++
		default:
			present++
		}
	}
	ran := t.Counts[Pass] + t.Counts.Bad()
	var b strings.Builder
	if r.Partial != "" {
		fmt.Fprintf(&b, "Not complete: %s. ", oneLine(r.Partial))
	}
	switch {
	case t.Counts.Bad() == 0 && t.GivenUp > 0:
		fmt.Fprintf(&b, "Failed: gave up %d of %s", hurt, Plural(present, "stack"))
	case ran == 0:
		b.WriteString("No case ran")
	case t.Counts.Bad() == 0 && r.Partial != "":
		fmt.Fprintf(&b, "So far %s passed on %s", Plural(ran, "case"), Plural(present, "stack"))
	case t.Counts.Bad() == 0:
		fmt.Fprintf(&b, "Passed: %s on %s", Plural(ran, "case"), Plural(present, "stack"))
	default:
		fmt.Fprintf(&b, "Failed: %d of %s", t.Counts.Bad(), Plural(ran, "case"))
		if t.Counts[Timeout] > 0 {
			fmt.Fprintf(&b, ", %d of them by not ending,", t.Counts[Timeout])
		}
		fmt.Fprintf(&b, " on %d of %s", hurt, Plural(present, "stack"))
	}
	if t.GivenUp > 0 {
		fmt.Fprintf(&b, "; %s not run, because their stacks were given up", Plural(t.GivenUp, "case"))
	}
	if n := t.Counts[Skip] - t.GivenUp; n > 0 {
		fmt.Fprintf(&b, "; %s skipped", Plural(n, "case"))
	}
	if missing > 0 {
		fmt.Fprintf(&b, "; %s not available here", Plural(missing, "stack"))
	}
	if waiting > 0 {
		fmt.Fprintf(&b, "; %s not run", Plural(waiting, "stack"))
	}
	b.WriteString(".")
	return b.String()
}
