package assembly

import (
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
)

// timing records the times of the steps from the first OpenSession to the first message. It exists if session.report includes timing, as with
// `ferry run --timing`. Methods of a nil timing have no effect.
type timing struct {
	mu     sync.Mutex
	report timingReport
}

// timingReport is sent to the launcher as JSON.
type timingReport struct {
	// In the order of the times.
	Marks []timeMark `json:"marks"`
	Parts []timePart `json:"parts"`
}

// timeMark is a completed step.
type timeMark struct {
	Step string `json:"step"`
	// By CLOCK_MONOTONIC.
	CompletedAt   time.Duration `json:"at_ns"`
	ProcessorTime time.Duration `json:"used_ns"`
}

// timePart is the time of a part of a step. Parts may overlap.
type timePart struct {
	Step    string        `json:"step"`
	Name    string        `json:"name"`
	Elapsed time.Duration `json:"took_ns"`
}

// The steps, in their usual order.
const (
	stepOpen          = "OpenSession is called"
	stepConfiguration = "configuration is read"
	stepSelection     = "components are selected"
	stepBootstrap     = "launcher is connected"
	stepModules       = "modules are open"
	stepSession       = "session is open"
	stepConstruct     = "group construct is called"
	stepConstructed   = "group construct is answered"
	stepTable         = "table of the members is read"
	stepComm          = "first communicator is made"
	stepPath          = "first path to a peer is open"
	stepMessage       = "first message is sent or received"
	stepClose         = "last session closes"
)

// newTiming returns a timing with a first mark.
func newTiming(began timeMark) *timing {
	return &timing{report: timingReport{Marks: []timeMark{began}}}
}

// now returns a mark with the present times.
func now(step string) timeMark { return timeMark{step, cpu.Monotonic(), cpu.Used()} }

// mark records the completion of a step, unless it was recorded before.
func (t *timing) mark(step string) {
	if t == nil {
		return
	}
	m := now(step)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.ContainsFunc(t.report.Marks, func(have timeMark) bool { return have.Step == step }) {
		t.report.Marks = append(t.report.Marks, m)
	}
}

// addPart records the time of a part of a step.
func (t *timing) addPart(step, name string, took time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Parts = append(t.report.Parts, timePart{step, name, took})
}

// snapshot returns a copy of the report. t is not nil.
func (t *timing) snapshot() timingReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return timingReport{slices.Clone(t.report.Marks), slices.Clone(t.report.Parts)}
}

// probes records the times of the components' probes.
func (t *timing) probes(selections map[framework.Kind]*framework.Selection) {
	for kind, s := range selections {
		for _, v := range s.Verdicts {
			if v.ProbeTime > 0 {
				t.addPart(stepSelection, "probe of "+string(kind)+" "+v.Name, v.ProbeTime)
			}
		}
	}
}

// opened records the time that a component took to open since start.
func (t *timing) opened(kind framework.Kind, name string, start time.Time) {
	t.addPart(stepModules, "open "+string(kind)+" "+name, time.Since(start))
}

// watch returns hooks that record the first path and the first message, and call the program's hooks. Without a timing they are the
// program's.
func (t *timing) watch(program pml.Hooks) pml.Hooks {
	if t == nil {
		return program
	}
	return &firstEvents{timing: t, programHooks: program}
}

// firstEvents is called with the engine's lock held.
type firstEvents struct {
	timing              *timing
	programHooks        pml.Hooks // May be nil.
	hasPath, hasMessage bool
}

func (f *firstEvents) Event(e pml.Event) {
	switch {
	case !f.hasPath && e.Kind == pml.EventTransportUp:
		f.hasPath = true
		f.timing.mark(stepPath)
	case !f.hasMessage && (e.Kind == pml.EventSend || e.Kind == pml.EventMatch):
		f.hasMessage = true
		f.timing.mark(stepMessage)
	}
	if f.programHooks != nil {
		f.programHooks.Event(e)
	}
}
