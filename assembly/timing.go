package assembly

import (
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
)

// timing notes when this process came how far on its way from the opening of its
// first session to its first message. There is one if session.report asks for it
// (`ferry run --timing`); otherwise it is nil, and all its methods do nothing.
type timing struct {
	mu     sync.Mutex
	report timingReport
}

// timingReport is what the launcher gets, as JSON.
type timingReport struct {
	Marks []timeMark `json:"marks"` // in the order in which they were reached
	Parts []timePart `json:"parts"` // of what lies between two marks
}

// timeMark is a step that is over.
type timeMark struct {
	Step string        `json:"step"`
	At   time.Duration `json:"at_ns"`   // on CLOCK_MONOTONIC
	Used time.Duration `json:"used_ns"` // processor time of the process until then
}

// timePart is how long a part of a step took. Parts may overlap.
type timePart struct {
	Step string        `json:"step"`
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
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

// newTiming makes one that began with the given mark.
func newTiming(began timeMark) *timing {
	return &timing{report: timingReport{Marks: []timeMark{began}}}
}

// now is a mark that may be kept.
func now(step string) timeMark { return timeMark{step, cpu.Monotonic(), cpu.Used()} }

// mark notes that a step is over, if it is the first of its name.
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

// part notes how long a part of a step took.
func (t *timing) part(step, name string, took time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Parts = append(t.report.Parts, timePart{step, name, took})
}

// snapshot returns what has been noted so far; t is not nil.
func (t *timing) snapshot() timingReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return timingReport{slices.Clone(t.report.Marks), slices.Clone(t.report.Parts)}
}

// probes notes how long each component's probe took.
func (t *timing) probes(selections map[framework.Kind]*framework.Selection) {
	for kind, s := range selections {
		for _, v := range s.Verdicts {
			if v.Took > 0 {
				t.part(stepSelection, "probe of "+string(kind)+" "+v.Name, v.Took)
			}
		}
	}
}

// opened notes how long a component took to open since start; it is deferred.
func (t *timing) opened(kind framework.Kind, name string, start time.Time) {
	t.part(stepModules, "open "+string(kind)+" "+name, time.Since(start))
}

// watch returns hooks that see the first path and the first message, besides what
// the program's hooks see. Without a timing they are the program's alone.
func (t *timing) watch(program pml.Hooks) pml.Hooks {
	if t == nil {
		return program
	}
	return &firstEvents{timing: t, program: program}
}

// firstEvents is used with the engine's lock held, as all hooks are.
type firstEvents struct {
	timing        *timing
	program       pml.Hooks // or nil
	path, message bool      // were seen
}

func (f *firstEvents) Event(e pml.Event) {
	switch {
	case !f.path && e.Kind == pml.EventTransportUp:
		f.path = true
		f.timing.mark(stepPath)
	case !f.message && (e.Kind == pml.EventSend || e.Kind == pml.EventMatch):
		f.message = true
		f.timing.mark(stepMessage)
	}
	if f.program != nil {
		f.program.Event(e)
	}
}
