package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// page is parsed when it is needed: ranks of `ferry bench` are this program too,
// and their start is measured.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"symbol": func(s Status) string { return symbols[s] },
		"text":   Printable,
		"size":   sizeText,
		"add":    func(a, b float64) float64 { return round(a + b) },
	}).Parse(pageHTML))
})

// Symbols stand beside the words and colours of statuses.
var symbols = map[Status]string{
	Pass: "✓", Fail: "✗", Timeout: "∞", Skip: "○", Unavailable: "–",
}

// view is what the template shows.
type view struct {
	Report     *Report
	Comparison *Comparison
	Verdict    string
	State      Status // of the whole
	Table      *Table
	Statuses   []Status // that occur
	Stacks     []stack
	Groups     []group
	Charts     []chart

	CSS    template.CSS
	JS     template.JS
	Policy string
}

// stack is a line of the table, and the section that it leads to.
type stack struct {
	Line
	ID      string
	Missing string
	Parts   []part
}

// part is the cases of one kind. One case alone is shown without a frame.
type part struct {
	ID   string
	Name string
	Cell Cell
	Rows []row
}

// row is a case with the name of its place in the page.
type row struct {
	Row
	ID string
}

// group is what did not pass for one reason.
type group struct {
	Group
	Rows []row
}

// WriteHTML writes the report, and what has changed since a baseline if c is not nil.
func WriteHTML(w io.Writer, r *Report, c *Comparison) error {
	v := view{
		Report: r, Comparison: c, Verdict: r.Verdict() + c.Verdict(), Table: r.Table(),
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS),
		Policy: fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; img-src data:; base-uri 'none'; form-action 'none'", hash(pageCSS), hash(pageJS)),
	}
	switch {
	case r.Failed() || c.Failed():
		v.State = Fail
	case r.Partial != "" || v.Table.Counts[Pass] == 0:
		v.State = Skip
	default:
		v.State = Pass
	}
	for _, s := range Statuses {
		if v.Table.Counts[s] > 0 {
			v.Statuses = append(v.Statuses, s)
		}
	}
	v.Stacks = stacks(v.Table)
	v.Groups = groups(r, v.Stacks)
	v.Charts = charts(r)
	return page().Execute(w, v)
}

// stacks makes the sections, those that were opened first.
func stacks(t *Table) []stack {
	var out []stack
	for i, l := range t.Lines {
		s := stack{Line: l, ID: fmt.Sprint("s", i), Missing: l.Missing()}
		n := 0
		add := func(name string, cell Cell) {
			if len(cell.Rows) == 0 {
				return
			}
			p := part{ID: fmt.Sprintf("s%d-p%d", i, len(s.Parts)), Name: name, Cell: cell}
			for _, r := range cell.Rows {
				p.Rows = append(p.Rows, row{r, fmt.Sprintf("s%d-c%d", i, n)})
				n++
			}
			s.Parts = append(s.Parts, p)
		}
		if l.Open.Status != "" {
			add(OpenCase, Cell{Counts: Counts{l.Open.Status: 1}, Rows: []Row{l.Open}})
		}
		for j, c := range l.Cells {
			add(t.Columns[j], c)
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b stack) int {
		return cmp.Compare(min(1, len(a.Missing)), min(1, len(b.Missing)))
	})
	return out
}

// Part is where the cases of a column are, or nil.
func (s stack) Part(column string) *part {
	i := slices.IndexFunc(s.Parts, func(p part) bool { return p.Name == column })
	if i < 0 {
		return nil
	}
	return &s.Parts[i]
}

// groups are the report's, with the places of their rows. Stacks that are not
// available are left out: the table has their reasons already.
func groups(r *Report, stacks []stack) []group {
	type key struct{ stack, name string }
	ids := map[key]string{}
	for _, s := range stacks {
		for _, p := range s.Parts {
			for _, row := range p.Rows {
				ids[key{row.Stack, row.Case}] = row.ID
			}
		}
	}
	var out []group
	for _, g := range r.Groups() {
		if g.Status == Unavailable && !slices.ContainsFunc(g.Rows, func(x Row) bool { return x.Case != OpenCase }) {
			continue
		}
		group := group{Group: g}
		for _, x := range g.Rows {
			group.Rows = append(group.Rows, row{x, ids[key{x.Stack, x.Case}]})
		}
		out = append(out, group)
	}
	return out
}

// Words is what a cell of the table says to those who don't see its colour.
func (p part) Words() string {
	var words []string
	for _, s := range slices.Backward(Statuses) {
		n := p.Cell.Counts[s]
		if s == Skip && p.Cell.GivenUp > 0 {
			n -= p.Cell.GivenUp
			words = append(words, fmt.Sprintf("%d given up", p.Cell.GivenUp))
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(words, ", ")
}

// Facts are the lines about the machine and the run.
func (v view) Facts() [][2]string {
	m := v.Report.Machine
	facts := [][2]string{{"Host", m.Host}, {"Kernel", m.Kernel}, {"CPU", m.CPU}}
	if m.Cores > 0 {
		facts = append(facts, [2]string{"Cores", strconv.Itoa(m.Cores)})
	}
	facts = append(facts, [2]string{"ferry", m.Ferry})
	for _, l := range m.Libraries {
		facts = append(facts, [2]string{l.Name, l.Version})
	}
	facts = append(facts, [2]string{"Suite", v.Report.Suite}, [2]string{"Took", fmt.Sprintf("%.0f s", v.Report.Seconds)})
	return slices.DeleteFunc(facts, func(f [2]string) bool { return f[1] == "" })
}

// hash is how a content security policy names what may stand in the page.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
