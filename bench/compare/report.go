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
	for _, begin := range []string{`{"figure":`, `{"peer":`, `{"ours":{`, `{"private_mib":`, `{"bench":`} {
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

// load reads a report that write has written.
func load(dir string) (*report, error) {
	b, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		return nil, err
	}
	return parseReport(b)
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
		w := &rep.Rows[i]
		f, ok := known[w.Name]
		if !ok {
			return nil, fmt.Errorf("results: there is no figure %q any more: measure again", w.Name)
		}
		w.figure = f
	}
	rep.stand()
	return rep, nil
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
	if len(rep.Rows) > 0 {
		besideTable(p, rep.Rows)
	}
	if len(rep.Alone) > 0 {
		p(`
## Ferry alone

Where two settings are compared they alternate like pairs with a peer. Both ranks
that play have a core of their own; of 65 ranks the other 63 are blocked in a
receive. Instructions are those of one message from Send to Recv between two ranks
that one goroutine plays, counted by valgrind's callgrind (` + "`make instructions`" + `).
`)
		ownTable(p, rep.Alone)
	}
	if len(rep.Kept) > 0 {
		p(`
## Memory

Of a rank: the mean of all, after a barrier and a message to each neighbour, or to
every rank. "private" is its own alone, "share" has what is shared divided by those
who share it; "in /dev/shm" is everything there, of all ranks together.
`)
		memoryTable(p, rep.Kept)
	}
	if len(rep.Rows) > 0 {
		settingsTable(p, rep.Rows)
	}
	return w.String()
}

type printer func(format string, a ...any)

// besideTable prints ours beside the strongest of the peers.
func besideTable(p printer, rows []row) {
	p("| figure | default: ours / peer's | ratio | best pair | wanted | best: ours / peer's | ratio | wanted | aim | raw hop, ns | pairs |")
	p("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
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
}

// settingsTable prints ours beside each peer.
func settingsTable(p printer, rows []row) {
	p(`
## Each setting of each peer

"others" is how many processors worked for other programs, or for other guests of
the host, while a sample was taken (median): figures taken beside 0.3 of them or
more are those of a busy machine, however near the processors are.
`)
	p("| figure | unit | peer | ours | peer's | ratio | best pair: ours / peer's | ratio | raw hop, ns | others | state | pairs kept | dropped | failed |")
	p("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		for _, x := range r.Results {
			p("| %s | %s | %s, %s | %s | %s | %.2f | %s / %s | %.2f | %.0f | %.1f | %s | %d | %d | %d |", r.Name, r.Unit, x.Peer, x.Setting,
				digits(x.Ours), digits(x.Theirs), x.Ratio, digits(x.Best.Ours), digits(x.Best.Peer), x.Best.Ratio,
				x.Hop, x.Others, x.State, x.Kept, x.Dropped, x.Failed)
		}
	}
}

// ownTable prints the rows of ours alone.
func ownTable(p printer, rows []own) {
	p("| figure | value | of | wanted | raw hop, ns | pairs |")
	p("| --- | --- | --- | --- | --- | --- |")
	for _, o := range rows {
		if o.NotMeasured != "" {
			p("| %s | not measured: %s | | %s | | |", o.Name, cell(o.NotMeasured), o.Wanted)
			continue
		}
		hop, pairs := "", ""
		if r := o.Result; r != nil {
			hop, pairs = fmt.Sprintf("%.0f", r.Hop), counts(r)
		}
		p("| %s | **%.2f%s** %s | %s | %s | %s | %s |", o.Name, o.Value, o.Unit, metOrShort(o.Met), o.Of, o.Wanted, hop, pairs)
	}
}

// memoryTable prints what ranks keep in memory.
func memoryTable(p printer, rows []memoryRow) {
	p("| ranks | messages | of | private, MiB | share, MiB | in /dev/shm, MiB |")
	p("| --- | --- | --- | --- | --- | --- |")
	for _, m := range rows {
		if m.NotMeasured != "" {
			p("| %d | %s | %s | not measured: %s | | |", m.Ranks, m.Messages, m.Of, cell(m.NotMeasured))
			continue
		}
		p("| %d | %s | %s | %s | %s | %s |", m.Ranks, m.Messages, m.Of, digits(m.Private), digits(m.Share), digits(m.Shm))
	}
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
	return fmt.Sprintf("%s / %s %s (%s)", digits(r.Ours), digits(r.Theirs), f.Unit, r.name())
}

func bestPair(r *result) string {
	return fmt.Sprintf("%s / %s = %.2f", digits(r.Best.Ours), digits(r.Best.Peer), r.Best.Ratio)
}

func verdict(s *standing) string { return fmt.Sprintf("**%.2f** %s", s.Ratio, metOrShort(s.Met)) }

func metOrShort(met bool) string {
	if met {
		return "met"
	}
	return "short"
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
