package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The generated part of docs/performance.md stands between these lines.
const (
	sectionBegin = "<!-- figures: `make compare` writes this part from bench/results.json -->"
	sectionEnd   = "<!-- end of figures -->"
)

// document writes the plots, and the generated part of performance.md.
func document(dir string, rep report) error {
	if err := plots(filepath.Join(dir, "plots"), rep.Curves); err != nil {
		return err
	}
	path := filepath.Join(dir, "performance.md")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := replaceSection(string(b), section(rep))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// replaceSection puts the generated part in its place.
func replaceSection(text, section string) (string, error) {
	before, rest, ok := strings.Cut(text, sectionBegin)
	_, after, ok2 := strings.Cut(rest, sectionEnd)
	if !ok || !ok2 {
		return "", fmt.Errorf("want the lines %s and %s", sectionBegin, sectionEnd)
	}
	return before + sectionBegin + "\n" + section + sectionEnd + after, nil
}

// section is the generated part of performance.md.
func section(rep report) string {
	var w strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&w, format+"\n", a...) }
	var versions []string
	for _, v := range rep.Versions {
		versions = append(versions, v.Name+" "+v.Version)
	}
	commit := ""
	if rep.Commit != "" {
		commit = " at commit " + rep.Commit
	}
	p("\nMeasured on %s%s: %s, %d processors, Linux %s; %s.", rep.Date, commit, rep.Processor, rep.Processors, rep.Kernel, strings.Join(versions, ", "))
	if rep.never() {
		p("\n**The machine was never near for long enough: all figures are rough.**")
	}
	if len(rep.Rows) > 0 {
		rep.besidePeers(p)
	}
	if len(rep.Alone) > 0 {
		p("\n### Ferry alone\n")
		ownTable(p, rep.Alone)
	}
	if len(rep.Kept) > 0 {
		p("\n### Memory of a rank\n")
		memoryTable(p, rep.Kept)
	}
	if len(rep.Curves) > 0 {
		p("\n### Over the size of the message\n")
		for _, g := range graphs {
			p("![%s](plots/%s)\n", g.title, g.file())
		}
	}
	return w.String()
}

// besidePeers prints the figures beside those of the peers.
func (rep *report) besidePeers(p printer) {
	p("\n### Ahead and behind\n")
	p("Ratios are ferry's figure to the peer's: below 1 is better for times, above 1 for bandwidths and rates.\n")
	list := func(title string, rows []string) {
		if len(rows) == 0 {
			rows = []string{"nothing"}
		}
		p("- %s: %s.", title, strings.Join(rows, "; "))
	}
	ahead, between, behind := rep.order()
	list("Ahead of every setting of every peer", ahead)
	list("Ahead of the peers as they come, and behind the best of their settings", between)
	list("Behind", behind)

	p("\n### Beside the peers\n")
	p("| figure | ferry / best peer as it comes | ratio | ferry / best of all their settings | ratio |")
	p("| --- | --- | --- | --- | --- |")
	for _, r := range rep.Rows {
		if r.Default == nil || r.Best == nil {
			p("| %s | not measured: %s | | | |", r.Name, cell(r.NotMeasured))
			continue
		}
		d, b := r.Default, r.Best
		p("| %s | %s | %.2f | %s | %.2f |", r.Name, both(r.figure, d.result), d.Ratio, both(r.figure, b.result), b.Ratio)
	}
}

// order sorts the figures by who is ahead.
func (rep *report) order() (ahead, between, behind []string) {
	for _, r := range rep.Rows {
		if r.Default == nil || r.Best == nil {
			continue
		}
		switch {
		case r.better(r.Best.Ratio, 1):
			ahead = append(ahead, fmt.Sprintf("%s (%.2f)", r.Name, r.Best.Ratio))
		case r.better(r.Default.Ratio, 1):
			between = append(between, fmt.Sprintf("%s (%.2f and %.2f)", r.Name, r.Default.Ratio, r.Best.Ratio))
		default:
			behind = append(behind, fmt.Sprintf("%s (%.2f)", r.Name, r.Best.Ratio))
		}
	}
	return ahead, between, behind
}

// name says which peer a result is about, and which setting if it is not as the
// peer comes.
func (r *result) name() string {
	if r.Default {
		return r.Peer
	}
	return r.Peer + ", " + r.Setting
}
