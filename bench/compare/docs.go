package main

import (
	"cmp"
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
func document(dir string, rep *report) error {
	if err := plots(filepath.Join(dir, "plots"), rep.Curves); err != nil {
		return err
	}
	path := filepath.Join(dir, "performance.md")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := replaceSection(string(b), rep.text("performance"))
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
