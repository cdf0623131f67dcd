package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// write writes results.md and results.json.
func write(dir string, rep report) error {
	b, err := json.Marshal(rep)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	// A line for each figure and each pair. Inside a string quotes are escaped, so
	// these are never part of one.
	for _, begin := range []string{`{"figure":`, `{"peer":`, `{"ours":{`} {
		b = bytes.ReplaceAll(b, []byte(begin), []byte("\n"+begin))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "results.md"), []byte(markdown(rep)), 0o644)
}

// markdown is the report for people.
func markdown(rep report) string {
	var w strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&w, format+"\n", a...) }
	p("# Ours and theirs, side by side\n")
	p("Written by `make compare` on %s, in %.0f minutes. All samples are in results.json.\n", rep.Date, math.Ceil(rep.Seconds/60))
	p("- Machine: %s, %d processors, %s of memory, Linux %s, %s", rep.Processor, rep.Processors, rep.Memory, rep.Kernel, rep.System)
	p("- Load average before: %s", rep.Load)
	if rep.Commit != "" {
		p("- Commit %s", rep.Commit)
	}
	for _, v := range rep.Versions {
		p("- %s %s", v.Name, v.Version)
	}
	p("- Best raw hop: %.1f ns between two threads, %.1f ns between our ranks", rep.Hops[outside], rep.Hops[ferryRanks])
	if rep.never() {
		p("\n**The machine was never near for long enough: all figures are far ones, and rough.**")
	}
	p(`
Each pair is a sample of ours and one of the peer's right after it; a sample is a
job of its own. Ratios are ours / peer's, of the medians of %d pairs or more. A pair counts
only in the near state: the raw cache-line hops around and inside both samples
are at most %.1f times the best that the same instrument saw in this run. "near":
there were enough such pairs; "few": at least half as many; "far": fewer, and all
pairs count. The best pair is the one whose two figures together are the best.
"default" is the better of the peers as they come, "best" the best of all their
settings (those that concern the size of message). Loops, warm-up and windows are
OSU's on both sides; ranks are bound to cores unless there are more ranks than
cores, and collectives then have 100 iterations after 10.
`, rep.Pairs, nearFactor)
	p("| figure | default: ours / peer's | ratio | best pair | wanted | best: ours / peer's | ratio | wanted | aim | raw hop, ns | pairs |")
	p("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rep.Rows {
		if r.Default == nil || r.Best == nil {
			p("| %s | not measured: %s | | | %s | | | %s | %s | | |", r.Name, cell(r.NotMeasured),
				wanted(r.figure, r.figure.Default), wanted(r.figure, r.figure.Best), r.Aim)
			continue
		}
		d, b := r.Default, r.Best
		p("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %.0f | %s |", r.Name,
			both(r.figure, d.result), verdict(d), bestPair(d.result), wanted(r.figure, r.figure.Default),
			both(r.figure, b.result), verdict(b), wanted(r.figure, r.figure.Best),
			aim(r.figure, d.result), d.Hop, counts(d.result))
	}
	p(`
## Each setting of each peer

"others" is how many processors worked for other programs, or for other guests of
the host, while a sample was taken (median): figures taken beside 0.3 of them or
more are those of a busy machine, however near the processors are.
`)
	p("| figure | unit | peer | ours | peer's | ratio | best pair: ours / peer's | ratio | raw hop, ns | others | state | pairs kept | dropped | failed |")
	p("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rep.Rows {
		for _, x := range r.Results {
			p("| %s | %s | %s, %s | %s | %s | %.2f | %s / %s | %.2f | %.0f | %.1f | %s | %d | %d | %d |", r.Name, r.Unit, x.Peer, x.Setting,
				digits(x.Ours), digits(x.Theirs), x.Ratio, digits(x.Best.Ours), digits(x.Best.Peer), x.Best.Ratio,
				x.Hop, x.Others, x.State, x.Kept, x.Dropped, x.Failed)
		}
	}
	return w.String()
}

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

func both(f figure, r *result) string {
	name := r.Peer
	if !r.Default {
		name += ", " + r.Setting
	}
	return fmt.Sprintf("%s / %s %s (%s)", digits(r.Ours), digits(r.Theirs), f.Unit, name)
}

func bestPair(r *result) string {
	return fmt.Sprintf("%s / %s = %.2f", digits(r.Best.Ours), digits(r.Best.Peer), r.Best.Ratio)
}

func verdict(s *standing) string {
	if s.Met {
		return fmt.Sprintf("**%.2f** met", s.Ratio)
	}
	return fmt.Sprintf("**%.2f** short", s.Ratio)
}

func wanted(f figure, ratio float64) string {
	if f.Lower {
		return fmt.Sprintf("<= %.2f", ratio)
	}
	return fmt.Sprintf(">= %.2f", ratio)
}

// aim shows where ours stands when the aim is in raw hops.
func aim(f figure, r *result) string {
	if !strings.HasSuffix(f.Aim, "raw hops") || r.Hop == 0 {
		return f.Aim
	}
	return fmt.Sprintf("%s (%.1f)", f.Aim, r.Ours*1000/r.Hop)
}

func counts(r *result) string {
	s := fmt.Sprintf("%s, %d of %d", r.State, r.Kept, r.Kept+r.Dropped)
	if r.Failed > 0 {
		s += fmt.Sprintf(", %d failed", r.Failed)
	}
	return s
}

// cell makes text fit a table.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "|", "\\|").Replace(s)
}
