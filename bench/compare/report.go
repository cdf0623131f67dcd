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
	"slices"
	"strings"
	"text/template"

	"github.com/ferrympi/ferry/internal/hop"
)

// write stores a report as JSON, and as the page of its machine.
func write(dir string, rep *report) error {
	b, err := json.Marshal(rep)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	// One line per figure and per pair. Quotes are escaped within strings, so these
	// patterns match only outside of them.
	for _, begin := range []string{`{"figure":`, `{"peer":`, `{"ours":{`, `{"private_mib":`, `{"bench":`} {
		b = bytes.ReplaceAll(b, []byte(begin), []byte("\n"+begin))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, rep.Key())
	if err := os.WriteFile(path+".json", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path+".md", []byte(rep.text("results")), 0o644)
}

// load returns the reports in dir, in the order of their file names.
func load(dir string) (all []*report, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no results of any machine in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	for _, path := range paths { // Glob sorts.
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
		// A figure that no longer exists keeps its stored description.
		if f, ok := known[rep.Rows[i].Name]; ok {
			rep.Rows[i].figure = f
		}
	}
	rep.stand()
	return rep, nil
}

//go:embed report.tmpl
var reportText string

// texts are the templates of report.tmpl.
var texts = template.Must(template.New("").Funcs(template.FuncMap{
	"digits":     digits,
	"cell":       strings.NewReplacer("\n", " ", "|", "\\|").Replace,
	"nearFactor": func() float64 { return hop.NearFactor },
	"graphs":     func() []graph { return graphs },
	"plotsOf":    plotsOf,
	"copies":     func() []string { return []string{"auto", "off", "cma", "memory"} },
}).Parse(reportText))

func (rep *report) text(name string) string {
	var b strings.Builder
	if err := texts.ExecuteTemplate(&b, name, rep); err != nil {
		panic(err) // The template does not fit its types; tests execute all templates.
	}
	return b.String()
}

// Minutes is the duration of the run.
func (rep *report) Minutes() int { return int(math.Ceil(rep.ElapsedSeconds / 60)) }

// digits formats v with three significant digits.
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

// Beside formats the value of ferry, that of the peer, and the peer's setting unless it is the default.
func (w row) Beside(s *standing) string {
	of := s.Peer
	if !s.result.IsDefault {
		of += ", " + s.Setting
	}
	return fmt.Sprintf("%s / %s %s (%s)", digits(s.Ours), digits(s.Theirs), w.Unit, of)
}

// Beside formats both medians.
func (m *medians) Beside(unit string) string {
	return fmt.Sprintf("%s / %s %s", shown(m.Ours), shown(m.Theirs), unit)
}

// Shown is the ratio, or "-".
func (m *medians) Shown() string {
	if m.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", m.Ratio)
}

// shown formats v with three digits, or as "-" if it is 0.
func shown(v float64) string {
	if v == 0 {
		return "-"
	}
	return digits(v)
}

// InOther formats the ratio of the other state than the figure's, with the number of samples
// on each side.
func (r *result) InOther() string {
	m := r.Other()
	if m == nil {
		return "-"
	}
	return fmt.Sprintf("%s: %s (%d and %d)", r.OtherState(), m.Shown(), m.OursTaken, m.PeersTaken)
}

// States returns the medians of each state with samples. The medians of all samples come
// first if they are the figure.
func (r *result) States() []inState {
	var list []inState
	if r.State == hop.Far && r.NearMedians != nil {
		list = append(list, inState{"all", &r.medians})
	}
	if r.NearMedians != nil {
		list = append(list, inState{"near", r.NearMedians})
	}
	if r.FarMedians != nil {
		list = append(list, inState{"far", r.FarMedians})
	}
	return list
}

// inState is the medians of one state.
type inState struct {
	StateName string
	*medians
}

// AimOf formats the aim. An aim in raw hops is followed by the value of ferry in raw hops.
func (w row) AimOf(hop, ours float64) string {
	if !strings.HasSuffix(w.Aim, "raw hops") || hop == 0 {
		return w.Aim
	}
	return fmt.Sprintf("%s (%.1f)", w.Aim, ours*1000/hop)
}

// Counts formats the state of the figure and the number of its samples on each side.
func (r *result) Counts() string {
	s := fmt.Sprintf("%s, %d and %d of %d", r.State, r.OursTaken, r.PeersTaken, len(r.Pairs))
	if r.FailedPairs > 0 {
		s += fmt.Sprintf(", %d failed", r.FailedPairs)
	}
	return s
}

// The lines around the generated part of docs/performance.md.
const (
	sectionBegin = "<!-- figures: `make compare` writes this part from bench/results -->"
	sectionEnd   = "<!-- end of figures -->"
)

// plotsOf returns the folder of a machine's plots, relative to docs.
func plotsOf(rep *report) string { return "plots/" + rep.Key() }

// document writes the plots of all machines and the generated part of performance.md.
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

// performance is the generated part of performance.md, with a section per machine.
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

// An order is the figures of a report by the position of ferry, as lists of names with ratios.
type order struct {
	// Ahead of every setting of every peer.
	aheadOfAll []string
	// Ahead of the peers as they come, behind the best of their settings.
	aheadOfDefaults []string
	behind          []string
}

func (o order) AheadOfAll() string      { return listed(o.aheadOfAll) }
func (o order) AheadOfDefaults() string { return listed(o.aheadOfDefaults) }
func (o order) Behind() string          { return listed(o.behind) }

func listed(names []string) string { return cmp.Or(strings.Join(names, "; "), "nothing") }

// Order sorts the figures of the report by the position of ferry.
func (rep *report) Order() (o order) {
	for _, r := range rep.Rows {
		switch {
		case r.DefaultStanding == nil || r.BestStanding == nil:
		case r.better(r.BestStanding.Ratio, 1):
			o.aheadOfAll = append(o.aheadOfAll, fmt.Sprintf("%s (%.2f)", r.Name, r.BestStanding.Ratio))
		case r.better(r.DefaultStanding.Ratio, 1):
			o.aheadOfDefaults = append(o.aheadOfDefaults, fmt.Sprintf("%s (%.2f and %.2f)", r.Name, r.DefaultStanding.Ratio, r.BestStanding.Ratio))
		default:
			o.behind = append(o.behind, fmt.Sprintf("%s (%.2f)", r.Name, r.BestStanding.Ratio))
		}
	}
	return o
}

// counts are the numbers of figures in each list of an order.
type counts struct{ AheadOfAll, AheadOfDefaults, Behind, Total int }

// Counts returns the lengths of the lists of Order.
func (rep *report) Counts() counts {
	o := rep.Order()
	c := counts{AheadOfAll: len(o.aheadOfAll), AheadOfDefaults: len(o.aheadOfDefaults), Behind: len(o.behind)}
	c.Total = c.AheadOfAll + c.AheadOfDefaults + c.Behind
	return c
}

// headlines are the names of the figures in docs/performance.md. The page of a machine has all figures.
var headlines = []string{
	"8 B latency", "1 MiB latency", "8 B message rate", "bandwidth 64 KiB", "bandwidth 1 MiB",
	"launch + init + finalize, 32 ranks", "session + first communicator to MPI_Init, 2 ranks",
	"barrier, 2 ranks", "allreduce 8 B, 2 ranks", "allreduce 1 MiB, 2 ranks", "allreduce 8 B, 8 ranks",
	"8 B latency over TCP", "bandwidth 1 MiB over TCP", "8 B latency over UCX shm", "match behind 1,000 posted",
}

// Headlines returns the measured rows of headlines.
func (rep *report) Headlines() []row {
	return slices.DeleteFunc(slices.Clone(rep.Rows), func(r row) bool {
		return r.DefaultStanding == nil || r.BestStanding == nil || !slices.Contains(headlines, r.Name)
	})
}
