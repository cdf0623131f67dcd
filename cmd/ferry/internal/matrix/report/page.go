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
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// Symbols stand beside the words and colours of statuses.
var symbols = map[Status]string{Pass: "✓", Fail: "✗", Timeout: "∞", Skip: "○", Refused: "⊘", Unavailable: "–"}

// A view has the data of the template.
type view struct {
	Report     *Report
	Comparison *Comparison
	Verdict    string
	State      Status // of the whole
	Table      *Table // without the stacks that are absent
	Absent     []Line // those
	// Failed, timed out, or given up.
	Failures []Group
	// All others, except of absent stacks.
	Skips  []Group
	Charts []chart

	CSS    template.CSS
	JS     template.JS
	Policy string
}

// WriteHTML writes the report as one self-contained page with style, script and plots. Its content security policy
// forbids all requests. It is readable without the script, on paper, on a phone and by a screen reader. The script
// adds filters and buttons that copy commands. c has the changes since a baseline, or is nil.
func WriteHTML(w io.Writer, r *Report, c *Comparison) error {
	v := view{
		Report: r, Comparison: c, Verdict: r.Verdict() + c.Verdict(), Table: r.Table(), Charts: charts(r),
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS),
		Policy: fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; img-src data:; base-uri 'none'; form-action 'none'", hash(pageCSS), hash(pageJS)),
	}
	switch {
	case r.Failed() || c.Failed():
		v.State = Fail
	case r.EndReason != "" || v.Table.Counts[Pass] == 0:
		v.State = Skip
	default:
		v.State = Pass
	}
	slices.SortStableFunc(v.Table.Lines, func(a, b Line) int { return cmp.Compare(a.order(), b.order()) })
	for _, l := range v.Table.Lines {
		for _, c := range l.Cells {
			slices.SortStableFunc(c, func(a, b Row) int { return cmp.Compare(a.order(), b.order()) })
		}
	}
	absent := func(l Line) bool { return l.OpenRow.Status.Absent() && l.Counts.Total() == 1 }
	for _, l := range v.Table.Lines {
		if absent(l) {
			v.Absent = append(v.Absent, l)
		}
	}
	v.Table.Lines = slices.DeleteFunc(v.Table.Lines, absent)
	// Stacks that are absent have a table, with their reasons.
	for _, g := range r.Groups() {
		switch {
		case g.Rows[0].order() == 0:
			v.Failures = append(v.Failures, g)
		case !g.Status.Absent() || slices.ContainsFunc(g.Rows, func(x Row) bool { return x.Case != OpenCase }):
			v.Skips = append(v.Skips, g)
		}
	}
	places := map[[2]string]int{}
	for i, row := range r.Rows {
		places[[2]string{row.Stack, row.Case}] = i
	}
	page, err := template.New("page").Funcs(template.FuncMap{
		"symbol": func(s Status) string { return symbols[s] },
		"text":   Printable,
		"size":   sizeText,
		"add":    func(a, b float64) float64 { return round(a + b) },
		"place":  func(row Row) string { return fmt.Sprint("c", places[[2]string{row.Stack, row.Case}]) },
	}).Parse(pageHTML)
	if err != nil {
		return err
	}
	return page.Execute(w, v)
}

// order is the sort key of a row. Failures come first.
func (r Row) order() int {
	if r.Status.Bad() || r.IsAbandoned {
		return 0
	}
	return 1
}

// order is the sort key of a line. Failures come first, stacks that were not opened last.
func (l Line) order() int {
	switch {
	case l.Counts.Bad()+l.Counts[abandoned] > 0:
		return 0
	case l.Missing() == "":
		return 1
	}
	return 2
}

// Facts are the lines about the machine and the run.
func (v view) Facts() [][2]string {
	m := v.Report.Machine
	facts := [][2]string{{"Host", m.Host}, {"Kernel", m.Kernel}, {"CPU", m.CPU}}
	if m.CoreCount > 0 {
		facts = append(facts, [2]string{"Cores", strconv.Itoa(m.CoreCount)})
	}
	facts = append(facts, [2]string{"ferry", m.FerryVersion})
	for _, l := range m.Libraries {
		facts = append(facts, [2]string{l.Name, l.Version})
	}
	facts = append(facts, [2]string{"Suite", v.Report.Suite}, [2]string{"Took", fmt.Sprintf("%.0f s", v.Report.Seconds)})
	return slices.DeleteFunc(facts, func(f [2]string) bool { return f[1] == "" })
}

// hash returns the source of a content security policy for an element of the page.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
