package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/ferrympi/ferry/internal/hop"
)

func write(dir string, rep *report) error {
	b, err := json.Marshal(rep)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	// A line for each figure and each pair. Inside a string quotes are escaped, so
	// these are never part of one.
	for _, begin := range []string{`{"figure":`, `{"peer":`, `{"ours":{`, `{"private_mib":`, `{"bench":`} {
		b = bytes.ReplaceAll(b, []byte(begin), []byte("\n"+begin))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, rep.key())
	if err := os.WriteFile(path+".json", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path+".md", []byte(rep.text("results")), 0o644)
}

// load returns what was measured on each machine, in the order of their names.
func load(dir string) (all []*report, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no results of any machine in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	for _, path := range paths { // Glob has sorted them
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		rep, err := parseReport(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, rep)
	}
	return all, nil
}

func parseReport(b []byte) (*report, error) {
	rep := &report{}
	if err := json.Unmarshal(b, rep); err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	known := map[string]figure{}
	for _, f := range figures() {
		known[f.Name] = f
	}
	for i := range rep.Rows {
		// One that isn't any more, of a machine that isn't here, stays as it was.
		if f, ok := known[rep.Rows[i].Name]; ok {
			rep.Rows[i].figure = f
		}
	}
	rep.stand()
	return rep, nil
}

//go:embed report.tmpl
var reportText string

// texts are what people read of a report.
var texts = template.Must(template.New("").Funcs(template.FuncMap{
	"digits":     digits,
	"cell":       strings.NewReplacer("\n", " ", "|", "\\|").Replace, // text that fits a table
	"nearFactor": func() float64 { return hop.NearFactor },
	"graphs":     func() []graph { return graphs },
	"plotsOf":    plotsOf,
	"ways":       func() []string { return []string{"auto", "off", "cma", "memory"} },
}).Parse(reportText))

func (rep *report) text(name string) string {
	var b strings.Builder
	if err := texts.ExecuteTemplate(&b, name, rep); err != nil {
		panic(err) // a template that doesn't fit its types: tests execute all of them
	}
	return b.String()
}

// Minutes that the run took.
func (rep *report) Minutes() int { return int(math.Ceil(rep.Seconds / 60)) }

// digits shows three of them.
func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// Beside shows ours beside a peer, and which setting of it if it is not as it comes.
func (w row) Beside(s *standing) string {
	of := s.Peer
	if !s.result.Default {
		of += ", " + s.Setting
	}
	return fmt.Sprintf("%s / %s %s (%s)", digits(s.Ours), digits(s.Theirs), w.Unit, of)
}

// Beside shows ours beside a peer's.
func (m *medians) Beside(unit string) string {
	return fmt.Sprintf("%s / %s %s", shown(m.Ours), shown(m.Theirs), unit)
}

// Shown is the ratio, if there is one.
func (m *medians) Shown() string {
	if m.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", m.Ratio)
}

// shown has three digits, or says that there is nothing.
func shown(v float64) string {
	if v == 0 {
		return "-"
	}
	return digits(v)
}

// InOther shows the ratio in the state that is not the figure's, and how many samples of
// either side it is made of.
func (r *result) InOther() string {
	m := r.Other()
	if m == nil {
		return "-"
	}
	return fmt.Sprintf("%s: %s (%d and %d)", r.OtherState(), m.Shown(), m.OursTaken, m.PeersTaken)
}

// States are those in which samples were taken, with what they come to; all of them
// together come first if they are the figure.
func (r *result) States() []inState {
	var list []inState
	if r.State == hop.Far && r.Near != nil {
		list = append(list, inState{"all", &r.medians})
	}
	if r.Near != nil {
		list = append(list, inState{"near", r.Near})
	}
	if r.Far != nil {
		list = append(list, inState{"far", r.Far})
	}
	return list
}

// inState is what the samples of a state come to.
type inState struct {
	Of string
	*medians
}

// AimOf shows where ours stands when the aim is in raw hops.
func (w row) AimOf(hop, ours float64) string {
	if !strings.HasSuffix(w.Aim, "raw hops") || hop == 0 {
		return w.Aim
	}
	return fmt.Sprintf("%s (%.1f)", w.Aim, ours*1000/hop)
}

// Counts says of how many samples of either side the figure is made.
func (r *result) Counts() string {
	s := fmt.Sprintf("%s, %d and %d of %d", r.State, r.OursTaken, r.PeersTaken, len(r.Pairs))
	if r.Failed > 0 {
		s += fmt.Sprintf(", %d failed", r.Failed)
	}
	return s
}

// The generated part of docs/performance.md stands between these lines.
const (
	sectionBegin = "<!-- figures: `make compare` writes this part from bench/results -->"
	sectionEnd   = "<!-- end of figures -->"
)

// plotsOf is where the plots of a machine are, below the folder of the page.
func plotsOf(rep *report) string { return "plots/" + rep.key() }

// document writes the plots of all machines, and the generated part of performance.md.
func document(dir string, all []*report) error {
	for _, rep := range all {
		if err := plots(filepath.Join(dir, plotsOf(rep)), rep.Curves); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, "performance.md")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := replaceSection(string(b), performance(all))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// performance is the generated part of performance.md: a section for each machine.
func performance(all []*report) (text string) {
	for _, rep := range all {
		text += rep.text("performance")
	}
	return text
}

func replaceSection(text, section string) (string, error) {
	before, rest, ok := strings.Cut(text, sectionBegin)
	_, after, ok2 := strings.Cut(rest, sectionEnd)
	if !ok || !ok2 {
		return "", fmt.Errorf("want the lines %s and %s", sectionBegin, sectionEnd)
	}
	return before + sectionBegin + "\n" + section + sectionEnd + after, nil
}

// Order lists the figures by who is ahead: ferry of every setting of every peer; of
// the peers as they come; and neither.
func (rep *report) Order() [3]string {
	var lists [3][]string
	for _, r := range rep.Rows {
		if r.Default == nil || r.Best == nil {
			continue
		}
		at, ratios := 2, fmt.Sprintf("%.2f", r.Best.Ratio)
		switch {
		case r.better(r.Best.Ratio, 1):
			at = 0
		case r.better(r.Default.Ratio, 1):
			at, ratios = 1, fmt.Sprintf("%.2f and %.2f", r.Default.Ratio, r.Best.Ratio)
		}
		lists[at] = append(lists[at], fmt.Sprintf("%s (%s)", r.Name, ratios))
	}
	var out [3]string
	for i, list := range lists {
		out[i] = cmp.Or(strings.Join(list, "; "), "nothing")
	}
	return out
}
