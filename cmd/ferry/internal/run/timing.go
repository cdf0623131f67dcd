package run

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/outfile"
)

// timingReport is the name of the ranks' reports for --timing.
const timingReport = "timing"

// A stepMark is the completion of a step in a process. Ranks report CLOCK_MONOTONIC. Times in a timing are relative
// to the start of ferry run.
type stepMark struct {
	Step        string        `json:"step"`
	CompletedAt time.Duration `json:"at_ns"`
	// Of the process so far; 0 if unknown.
	ProcessorTime time.Duration `json:"used_ns,omitempty"`

	// Of the previous step.
	previousAt            time.Duration
	previousProcessorTime time.Duration
}

// partTime is the duration of a part of a step.
type partTime struct {
	Step     string        `json:"step"`
	Name     string        `json:"name"`
	Duration time.Duration `json:"took_ns"`
}

// processTiming is the timing of one process.
type processTiming struct {
	// launcherRank for ferry run.
	Rank  int        `json:"rank"`
	Marks []stepMark `json:"marks"`
	Parts []partTime `json:"parts,omitempty"`
}

const launcherRank = -1

// A stepSummary summarizes a step of all ranks, or of the launcher.
type stepSummary struct {
	Step string `json:"step"`
	// With the step; 0 for one of the launcher.
	RankCount int           `json:"ranks"`
	FirstAt   time.Duration `json:"first_ns"`
	MedianAt  time.Duration `json:"median_ns"`
	LastAt    time.Duration `json:"last_ns"`
	// Median since the previous step.
	Duration time.Duration `json:"took_ns"`
	// The median.
	ProcessorTime time.Duration `json:"used_ns"`
	// Part of the total by which this step delays the last rank.
	DelayShare float64    `json:"share"`
	Parts      []partTime `json:"parts,omitempty"`
}

type timing struct {
	TotalTime time.Duration   `json:"whole_ns"`
	Phases    []stepSummary   `json:"phases"`
	Processes []processTiming `json:"processes"`
	// Ranks without a report.
	RanksWithoutReport []int `json:"silent,omitempty"`
}

// Steps seen by the launcher.
const (
	stepCommand = "ferry run: command line and settings are read"
	stepServing = "ferry run: server listens"
	stepFork    = "process is asked for"
	stepStarted = "process runs the program"
	stepEnded   = "process has ended"
	stepDone    = "ferry run: job is tidied up"
)

// processStart estimates the start of this process from its processor time, since it has hardly waited so far. The
// kernel's start time has a resolution of 10 ms.
func processStart() time.Duration { return cpu.Monotonic() - cpu.Used() }

// mergeTiming merges the times of the launcher and the ranks.
func mergeTiming(began time.Duration, res launch.Result) (*timing, error) {
	x := res.Trace
	t := &timing{TotalTime: x.TidiedUpAt - began, Processes: []processTiming{{Rank: launcherRank, Marks: []stepMark{
		{Step: stepCommand, CompletedAt: x.CalledAt, previousAt: began}, {Step: stepServing, CompletedAt: x.ServingAt, previousAt: x.CalledAt}, {Step: stepDone, CompletedAt: x.TidiedUpAt, previousAt: x.RanksEndedAt},
	}}}}
	reports := map[int]processTiming{}
	for _, r := range res.Reports {
		if _, isLater := reports[r.Rank]; r.Name != timingReport || isLater {
			continue // Later sessions are not part of the start.
		}
		var p processTiming
		if err := json.Unmarshal(r.Body, &p); err != nil {
			return nil, fmt.Errorf("timing of rank %d: %w", r.Rank, err)
		}
		reports[r.Rank] = p
	}
	forkReadyAt := x.ServingAt // The launcher can start the next rank.
	for _, r := range x.Ranks {
		p, ok := reports[r.Rank]
		if !ok {
			t.RanksWithoutReport = append(t.RanksWithoutReport, r.Rank)
		}
		p.Rank = r.Rank
		slices.SortStableFunc(p.Marks, func(a, b stepMark) int { return cmp.Compare(a.CompletedAt, b.CompletedAt) })
		last := stepMark{CompletedAt: r.RunningAt}
		for i := range p.Marks {
			m := &p.Marks[i]
			m.previousAt, m.previousProcessorTime = last.CompletedAt, last.ProcessorTime
			last = *m
		}
		p.Marks = slices.Concat([]stepMark{{Step: stepFork, CompletedAt: r.ForkRequestedAt, previousAt: forkReadyAt}, {Step: stepStarted, CompletedAt: r.RunningAt, previousAt: r.ForkRequestedAt}},
			p.Marks, []stepMark{{Step: stepEnded, CompletedAt: r.EndSeenAt, previousAt: last.CompletedAt}})
		t.Processes = append(t.Processes, p)
		forkReadyAt = r.RunningAt
	}
	for _, p := range t.Processes {
		for i := range p.Marks {
			p.Marks[i].CompletedAt -= began
			p.Marks[i].previousAt -= began
		}
	}
	t.summarize()
	return t, nil
}

// summarize computes the phases in order of time.
func (t *timing) summarize() {
	type sample struct{ at, durations, used []time.Duration }
	samples, parts := map[string]*sample{}, map[partTime][]time.Duration{} // Keys have no Duration.
	for _, p := range t.Processes {
		for _, m := range p.Marks {
			s := samples[m.Step]
			if s == nil {
				s = &sample{}
				samples[m.Step] = s
				t.Phases = append(t.Phases, stepSummary{Step: m.Step})
			}
			s.at, s.durations = append(s.at, m.CompletedAt), append(s.durations, m.CompletedAt-m.previousAt)
			if m.ProcessorTime > 0 {
				s.used = append(s.used, m.ProcessorTime-m.previousProcessorTime)
			}
		}
		for _, x := range p.Parts {
			key := partTime{Step: x.Step, Name: x.Name}
			parts[key] = append(parts[key], x.Duration)
		}
	}
	for i := range t.Phases {
		ph := &t.Phases[i]
		s := samples[ph.Step]
		ph.MedianAt, ph.Duration, ph.ProcessorTime = median(s.at), median(s.durations), median(s.used)
		ph.FirstAt, ph.LastAt = s.at[0], s.at[len(s.at)-1] // Sorted by median.
		if ph.Step != stepCommand && ph.Step != stepServing && ph.Step != stepDone {
			ph.RankCount = len(s.at)
		}
		for key, durations := range parts {
			if key.Step == ph.Step {
				ph.Parts = append(ph.Parts, partTime{key.Step, key.Name, median(durations)})
			}
		}
		slices.SortFunc(ph.Parts, func(a, b partTime) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.SortStableFunc(t.Phases, func(a, b stepSummary) int { return cmp.Compare(a.MedianAt, b.MedianAt) })
	var reached time.Duration
	for i := range t.Phases {
		ph := &t.Phases[i]
		ph.DelayShare = float64(max(0, ph.LastAt-reached)) / float64(t.TotalTime)
		reached = max(reached, ph.LastAt)
	}
}

// median sorts a list and returns its median, or 0 if it is empty.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[(len(list)-1)/2]
}

func (t *timing) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-48s%10s%10s%10s%10s%11s%7s\n", "done, ms after ferry run began", "first", "median", "last", "took", "processor", "share")
	for _, ph := range t.Phases {
		name := ph.Step
		if ph.RankCount > 0 && ph.RankCount < len(t.Processes)-1 {
			name += fmt.Sprintf(" (%d ranks)", ph.RankCount)
		}
		used := ""
		if ph.ProcessorTime > 0 {
			used = formatMillis(ph.ProcessorTime)
		}
		fmt.Fprintf(&b, "%-48s%10s%10s%10s%10s%11s%6.0f%%\n", name, formatMillis(ph.FirstAt), formatMillis(ph.MedianAt), formatMillis(ph.LastAt), formatMillis(ph.Duration), used, 100*ph.DelayShare)
		for _, x := range ph.Parts {
			fmt.Fprintf(&b, "    %-74s%10s\n", x.Name, formatMillis(x.Duration))
		}
	}
	if len(t.RanksWithoutReport) > 0 {
		fmt.Fprintf(&b, "ranks that closed no session, and reported nothing: %s\n", strings.Trim(fmt.Sprint(t.RanksWithoutReport), "[]"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func formatMillis(d time.Duration) string {
	return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond))
}

// Values of --timing other than files.
const (
	timingTable = "table"
	timingJSON  = "json"
)

// openTiming opens the output of --timing, a JSON file or stderr.
func openTiming(flag string, stderr io.Writer) (show func(*timing) error, err error) {
	switch flag {
	case timingTable:
		return func(t *timing) error { return t.print(stderr) }, nil
	case timingJSON:
		return func(t *timing) error { return settings.PrintJSON(stderr, t) }, nil
	}
	f, err := outfile.NewReport(flag)
	if err != nil {
		return nil, err
	}
	return func(t *timing) error {
		return errors.Join(f.Write(func(w io.Writer) error { return settings.PrintJSON(w, t) }), f.Close())
	}, nil
}
