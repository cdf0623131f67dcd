package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bad reports a failure, as opposed to an absent or skipped case.
func (s Status) Bad() bool { return s == Fail || s == Timeout }

// abandoned counts the rows with IsAbandoned. It is never the Status of a row.
const abandoned Status = "given up"

// kinds lists the counted statuses, the worst first. Absent stacks come after the others.
var kinds = []Status{Fail, Timeout, abandoned, Skip, Refused, Unavailable, Pass}

// kind returns the status as which the row is counted.
func (r Row) kind() Status {
	if r.IsAbandoned {
		return abandoned
	}
	return r.Status
}

// Failed reports whether a case failed or did not end without an exclusion, or was not run because of Row.IsAbandoned.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Status.Bad() || row.IsAbandoned })
}

// Columns of a table of stacks, in the order of display. A case outside them has another column after these.
var columns = []string{"btltest", "mtltest", "pmltest", "conform", "latency", "rate", "bandwidth"}

// column returns the kit of a case or the name of its benchmark, or "" for OpenCase.
func column(testCase string) string {
	kit, rest, _ := strings.Cut(testCase, "/")
	if kit == "bench" && rest != "" {
		return rest
	}
	return kit
}

// A Table summarizes a report. It has a line for each stack and a cell for each column of cases.
type Table struct {
	Columns []string
	Lines   []Line
	// Counts of all rows.
	Counts Counts
}

// A Line is a stack. A stack that could not be opened has no cells.
type Line struct {
	Stack Stack
	// That of OpenCase. Its Status is "" if the run ended before.
	OpenRow Row
	Cells   map[string]Cell // by column
	Counts  Counts
}

// A Cell is all cases of one kind on one stack.
type Cell []Row

// Counts are those of the cell's rows.
func (c Cell) Counts() Counts {
	counts := Counts{}
	for _, row := range c {
		counts[row.kind()]++
	}
	return counts
}

// Counts are the numbers of rows by status.
type Counts map[Status]int

// Total returns the number of rows.
func (c Counts) Total() (n int) {
	for _, k := range c {
		n += k
	}
	return n
}

// Bad returns the number of rows that failed or did not end.
func (c Counts) Bad() int { return c[Fail] + c[Timeout] }

// State returns the status of all rows together: the worst if that is bad, else Pass if a row passed. A stack with
// abandoned cases has not passed.
func (c Counts) State() Status {
	for _, s := range kinds {
		switch {
		case c[s] == 0:
		case s == abandoned:
			return Skip
		case s.Bad() || c[Pass] == 0 || s == Pass:
			return s
		}
	}
	return ""
}

// Of returns the number of rows with a status.
func (c Counts) Of(s Status) int {
	if s == Skip {
		return c[Skip] + c[abandoned]
	}
	return c[s]
}

// Statuses lists the statuses that occur, the worst first.
func (c Counts) Statuses() []Status {
	return slices.DeleteFunc(slices.Clone(Statuses), func(s Status) bool { return c.Of(s) == 0 })
}

// Words describes the numbers.
func (c Counts) Words() string {
	var words []string
	for _, s := range slices.Backward(kinds) {
		if c[s] > 0 {
			words = append(words, fmt.Sprintf("%d %s", c[s], s))
		}
	}
	return strings.Join(words, ", ")
}

// Table summarizes the report. Empty columns are left out.
func (r *Report) Table() *Table {
	t := &Table{Columns: slices.Clone(columns), Counts: Cell(r.Rows).Counts()}
	at := map[string]int{}
	line := func(s Stack) *Line {
		if _, ok := at[s.Name]; !ok {
			at[s.Name] = len(t.Lines)
			t.Lines = append(t.Lines, Line{Stack: s, Counts: Counts{}, Cells: map[string]Cell{}})
		}
		return &t.Lines[at[s.Name]]
	}
	for _, s := range r.Stacks {
		line(s)
	}
	used := map[string]bool{}
	for _, row := range r.Rows {
		l := line(Stack{Name: row.Stack, Provider: row.Provider})
		l.Counts[row.kind()]++
		if row.Case == OpenCase {
			l.OpenRow = row
			continue
		}
		c := column(row.Case)
		if used[c] = true; !slices.Contains(t.Columns, c) {
			t.Columns = append(t.Columns, c)
		}
		l.Cells[c] = append(l.Cells[c], row)
	}
	t.Columns = slices.DeleteFunc(t.Columns, func(c string) bool { return !used[c] })
	return t
}

// Missing describes why the stack has no cells, or returns "" if it was opened.
func (l Line) Missing() string {
	switch {
	case l.OpenRow.Status != "" && l.OpenRow.Status != Pass:
		return fmt.Sprintf("%s: %s", l.OpenRow.Status, l.OpenRow.Reason)
	case l.Stack.AbsentReason != "":
		return l.Stack.Missing()
	case l.Counts.Total() == 0:
		return "not run"
	}
	return ""
}

// String returns the figure of a benchmark or the number of passed cases. "35/37!" means that of 37 cases without
// those skipped for other reasons, two failed or were not run because of Row.IsAbandoned.
func (c Cell) String() string {
	n := c.Counts()
	of := n.Total() - n[Skip] - n[Refused] - n[Unavailable]
	switch {
	case of == 0:
		return string(n.State()) // "" for no rows
	case n[Pass] < of:
		return fmt.Sprintf("%d/%d!", n[Pass], of)
	case len(c) == 1 && len(c[0].Points) > 0:
		return c[0].best().Figure()
	}
	return fmt.Sprint(n[Pass])
}

// best returns the figure that represents a benchmark, which is the latency or rate of the shortest message or the
// best bandwidth.
func (r Row) best() Point {
	return slices.MinFunc(r.Points, func(a, b Point) int {
		if a.Unit == "MB/s" {
			return cmp.Compare(b.Value, a.Value)
		}
		return cmp.Compare(a.Size, b.Size)
	})
}

// larger are the units that are a thousand of the one before.
var larger = map[string][]string{"us": {"ms"}, "MB/s": {"GB/s"}, "msg/s": {"k/s", "M/s"}}

// Figure is the value with its unit, to three digits.
func (p Point) Figure() string {
	value, unit := p.Value, p.Unit
	for _, u := range larger[p.Unit] {
		if value >= 1000 {
			value, unit = value/1000, u
		}
	}
	digits := 2 - int(math.Log10(min(max(value, 1), 100)))
	return fmt.Sprintf("%.*f %s", digits, value, unit)
}

// A Group has the rows with the same status and reason.
type Group struct {
	Status Status
	Reason string
	Rows   []Row
}

// Groups returns the rows that did not pass, the worst first and then in the order of the rows.
func (r *Report) Groups() []Group {
	at := map[[2]string]int{}
	var groups []Group
	for _, row := range r.Rows {
		if row.Status == Pass {
			continue
		}
		key := [2]string{string(row.kind()), row.Reason}
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key] = i
			groups = append(groups, Group{Status: row.Status, Reason: row.Reason})
		}
		groups[i].Rows = append(groups[i].Rows, row)
	}
	order := func(g Group) int { return slices.Index(kinds, g.Rows[0].kind()) }
	slices.SortStableFunc(groups, func(a, b Group) int { return order(a) - order(b) })
	return groups
}

// Obsolete returns the excluded rows that passed.
func (r *Report) Obsolete() []Row {
	return slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Status != Pass || row.ExclusionReason == "" })
}

// Verdict summarizes the report in a sentence or two.
func (r *Report) Verdict() string {
	t := r.Table()
	present, missing, refused, hurt, waiting := 0, 0, 0, 0, 0
	for _, l := range t.Lines {
		switch {
		case l.Counts.Bad()+l.Counts[abandoned] > 0:
			hurt++
			present++
		case l.OpenRow.Status == Refused || l.OpenRow.Status == "" && l.Stack.IsRefused:
			refused++
		case l.OpenRow.Status == Unavailable || l.Stack.AbsentReason != "":
			missing++
		case l.Counts.Total() == 0:
			waiting++
		default:
			present++
		}
	}
	bad, ran, on := t.Counts.Bad(), t.Counts[Pass]+t.Counts.Bad(), Plural(present, "stack")
	var b strings.Builder
	if r.EndReason != "" {
		fmt.Fprintf(&b, "Not complete: %s. ", oneLine(r.EndReason))
	}
	switch {
	case bad == 0 && t.Counts[abandoned] > 0:
		fmt.Fprintf(&b, "Failed: gave up %d of %s", hurt, on)
	case ran == 0:
		b.WriteString("No case ran")
	case bad == 0 && r.EndReason != "":
		fmt.Fprintf(&b, "So far %s passed on %s", Plural(ran, "case"), on)
	case bad == 0:
		fmt.Fprintf(&b, "Passed: %s on %s", Plural(ran, "case"), on)
	default:
		fmt.Fprintf(&b, "Failed: %d of %s", bad, Plural(ran, "case"))
		if n := t.Counts[Timeout]; n > 0 {
			fmt.Fprintf(&b, ", %d of them because they did not end,", n)
		}
		fmt.Fprintf(&b, " on %d of %s", hurt, on)
	}
	for _, more := range []struct {
		n          int
		what, says string
	}{
		{t.Counts[abandoned], "case", "not run, because their stacks were given up"}, {t.Counts[Skip], "case", "skipped"},
		{refused, "stack", "refused for a defect"}, {missing, "stack", "not available here"}, {waiting, "stack", "not run"},
	} {
		if more.n > 0 {
			fmt.Fprintf(&b, "; %s %s", Plural(more.n, more.what), more.says)
		}
	}
	b.WriteString(".")
	return b.String()
}
