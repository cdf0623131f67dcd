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

// timingReport is the name under which ranks hand in what --timing asks for.
const timingReport = "timing"

// A mark is a step that a process has done. Ranks report theirs on
// CLOCK_MONOTONIC; in a trace, times begin when ferry run began.
type mark struct {
	Step string        `json:"step"`
	At   time.Duration `json:"at_ns"`
	Used time.Duration `json:"used_ns,omitempty"` // processor time of the process until then; 0: unknown

	since     time.Duration // the step before was done
	usedSince time.Duration // processor time until then
}

// part is how long a part of a step took.
type part struct {
	Step string        `json:"step"`
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// process is what is known of one process.
type process struct {
	Rank  int    `json:"rank"` // launcher for ferry run
	Marks []mark `json:"marks"`
	Parts []part `json:"parts,omitempty"`
}

const launcher = -1

// A phase sums up a step of all ranks, or of the launcher.
type phase struct {
	Step   string        `json:"step"`
	Ranks  int           `json:"ranks"` // that have done it; 0: it is the launcher's
	First  time.Duration `json:"first_ns"`
	Median time.Duration `json:"median_ns"`
	Last   time.Duration `json:"last_ns"`
	Took   time.Duration `json:"took_ns"` // since the step before; median
	Used   time.Duration `json:"used_ns"` // processor time in that; median
	Share  float64       `json:"share"`   // of the whole: how much later the last is here than with all steps above
	Parts  []part        `json:"parts,omitempty"`
}

type trace struct {
	Whole     time.Duration `json:"whole_ns"`
	Phases    []phase       `json:"phases"`
	Processes []process     `json:"processes"`
	Silent    []int         `json:"silent,omitempty"` // ranks that have handed in nothing
}

// Steps that the launcher sees.
const (
	stepCommand = "ferry run: command line and settings are read"
	stepServing = "ferry run: server listens"
	stepFork    = "process is asked for"
	stepStarted = "process runs the program"
	stepEnded   = "process has ended"
	stepDone    = "ferry run: job is tidied up"
)

// began is when this process began, as far as it can tell: it has used this much
// of a processor by now, and has waited for little. What the kernel says has a
// resolution of 10 ms.
func began() time.Duration { return cpu.Monotonic() - cpu.Used() }

// newTrace puts together what the launcher and the ranks have noted.
func newTrace(began time.Duration, res launch.Result) (*trace, error) {
	x := res.Trace
	t := &trace{Whole: x.Done - began, Processes: []process{{Rank: launcher, Marks: []mark{
		{Step: stepCommand, At: x.Begin, since: began}, {Step: stepServing, At: x.Serving, since: x.Begin}, {Step: stepDone, At: x.Done, since: x.Over},
	}}}}
	reports := map[int]process{}
	for _, r := range res.Reports {
		if _, again := reports[r.Rank]; r.Name != timingReport || again {
			continue // what a process does after its first sessions is not its start
		}
		var p process
		if err := json.Unmarshal(r.Body, &p); err != nil {
			return nil, fmt.Errorf("timing of rank %d: %w", r.Rank, err)
		}
		reports[r.Rank] = p
	}
	free := x.Serving // the launcher could start the next rank
	for _, r := range x.Ranks {
		p, ok := reports[r.Rank]
		if !ok {
			t.Silent = append(t.Silent, r.Rank)
		}
		p.Rank = r.Rank
		slices.SortStableFunc(p.Marks, func(a, b mark) int { return cmp.Compare(a.At, b.At) })
		last := mark{At: r.Started}
		for i := range p.Marks {
			m := &p.Marks[i]
			m.since, m.usedSince = last.At, last.Used
			last = *m
		}
		p.Marks = slices.Concat([]mark{{Step: stepFork, At: r.Fork, since: free}, {Step: stepStarted, At: r.Started, since: r.Fork}},
			p.Marks, []mark{{Step: stepEnded, At: r.Ended, since: last.At}})
		t.Processes = append(t.Processes, p)
		free = r.Started
	}
	for _, p := range t.Processes {
		for i := range p.Marks {
			p.Marks[i].At -= began
			p.Marks[i].since -= began
		}
	}
	t.sum()
	return t, nil
}

// sum makes the phases, in the order of time.
func (t *trace) sum() {
	type sample struct{ at, took, used []time.Duration }
	samples, parts := map[string]*sample{}, map[part][]time.Duration{} // of parts without Took
	for _, p := range t.Processes {
		for _, m := range p.Marks {
			s := samples[m.Step]
			if s == nil {
				s = &sample{}
				samples[m.Step] = s
				t.Phases = append(t.Phases, phase{Step: m.Step})
			}
			s.at, s.took = append(s.at, m.At), append(s.took, m.At-m.since)
			if m.Used > 0 {
				s.used = append(s.used, m.Used-m.usedSince)
			}
		}
		for _, x := range p.Parts {
			key := part{Step: x.Step, Name: x.Name}
			parts[key] = append(parts[key], x.Took)
		}
	}
	for i := range t.Phases {
		ph := &t.Phases[i]
		s := samples[ph.Step]
		ph.Median, ph.Took, ph.Used = median(s.at), median(s.took), median(s.used)
		ph.First, ph.Last = s.at[0], s.at[len(s.at)-1] // median sorts
		if ph.Step != stepCommand && ph.Step != stepServing && ph.Step != stepDone {
			ph.Ranks = len(s.at)
		}
		for key, took := range parts {
			if key.Step == ph.Step {
				ph.Parts = append(ph.Parts, part{key.Step, key.Name, median(took)})
			}
		}
		slices.SortFunc(ph.Parts, func(a, b part) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.SortStableFunc(t.Phases, func(a, b phase) int { return cmp.Compare(a.Median, b.Median) })
	var reached time.Duration
	for i := range t.Phases {
		ph := &t.Phases[i]
		ph.Share = float64(max(0, ph.Last-reached)) / float64(t.Whole)
		reached = max(reached, ph.Last)
	}
}

// median sorts a list and returns its median; 0 if it is empty.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[(len(list)-1)/2]
}

func (t *trace) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-48s%10s%10s%10s%10s%11s%7s\n", "done, ms after ferry run began", "first", "median", "last", "took", "processor", "share")
	for _, ph := range t.Phases {
		name := ph.Step
		if ph.Ranks > 0 && ph.Ranks < len(t.Processes)-1 {
			name += fmt.Sprintf(" (%d ranks)", ph.Ranks)
		}
		used := ""
		if ph.Used > 0 {
			used = ms(ph.Used)
		}
		fmt.Fprintf(&b, "%-48s%10s%10s%10s%10s%11s%6.0f%%\n", name, ms(ph.First), ms(ph.Median), ms(ph.Last), ms(ph.Took), used, 100*ph.Share)
		for _, x := range ph.Parts {
			fmt.Fprintf(&b, "    %-74s%10s\n", x.Name, ms(x.Took))
		}
	}
	if len(t.Silent) > 0 {
		fmt.Fprintf(&b, "ranks that closed no session, and reported nothing: %s\n", strings.Trim(fmt.Sprint(t.Silent), "[]"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond)) }

// Values of --timing that are no file.
const (
	timingTable = "table"
	timingJSON  = "json"
)

// timingTo opens the output that --timing names, which is a file for JSON, or stderr.
func timingTo(flag string, stderr io.Writer) (show func(*trace) error, err error) {
	switch flag {
	case timingTable:
		return func(t *trace) error { return t.print(stderr) }, nil
	case timingJSON:
		return func(t *trace) error { return settings.PrintJSON(stderr, t) }, nil
	}
	f, err := outfile.NewReport(flag)
	if err != nil {
		return nil, err
	}
	return func(t *trace) error {
		return errors.Join(f.Write(func(w io.Writer) error { return settings.PrintJSON(w, t) }), f.Close())
	}, nil
}
