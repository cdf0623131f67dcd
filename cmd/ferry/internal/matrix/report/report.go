// Package report is what `ferry matrix` has found: what became of every case on
// every stack, what that amounts to, and how it is shown: to people as text, live on
// a terminal, and as one HTML page; to programs as JSON and JUnit's XML. It runs
// nothing.
package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/internal/cpu"
)

// Status is what became of a case.
type Status string

// The outcomes. A case that needs more than its limit is a Timeout, whether its
// processes still obeyed or had to be killed; one whose process was lost is a Fail.
const (
	Pass        Status = "pass"
	Fail        Status = "fail"
	Skip        Status = "skip"        // it does not apply, is excluded, or was not run (see GivenUp); the reason says which
	Timeout     Status = "timeout"     // it did not end
	Refused     Status = "refused"     // the machine has such a stack, and ferry does not use it: it has a defect
	Unavailable Status = "unavailable" // the machine or the program has no such stack
)

// Statuses in the order of how bad they are, the worst first.
var Statuses = []Status{Fail, Timeout, Refused, Unavailable, Skip, Pass}

// Absent says that a stack was not tried, because it is not there or is not used.
func (s Status) Absent() bool { return s == Refused || s == Unavailable }

// OpenCase is the case that every stack has: whether it is there. A stack that is
// not has no others.
const OpenCase = "open"

// A Stack is one way for messages to travel.
type Stack struct {
	Name     string `json:"name"`               // "ob1+shm", "cm+ofi tcp;ofi_rxm"
	PML      string `json:"pml"`                // "cm"
	Via      string `json:"via,omitempty"`      // transport component: "btl shm", "mtl ofi"
	Provider string `json:"provider,omitempty"` // "tcp;ofi_rxm"; empty where the transport has nothing to choose from
	Device   string `json:"device,omitempty"`   // "eth0"
	Mode     string `json:"mode,omitempty"`     // how an MTL lays out tags
	Library  string `json:"library,omitempty"`  // name and version of the library below
	// Set is the parameters (NAME=VALUE, as for --set) that choose this stack and
	// nothing else.
	Set []string `json:"set,omitempty"`
	// Reason says why there is no such stack; empty if there is one.
	Reason string `json:"reason,omitempty"`
	// Hangs says that nobody knows whether there is: its provider was asked, and did
	// not answer. Reason has the words.
	Hangs bool `json:"hangs,omitempty"`
	// Refused says that there is, and that it is not used for a defect, which Reason
	// has.
	Refused bool `json:"refused,omitempty"`
	// Self says that its transport, by its own word, is for a process itself only.
	Self bool `json:"self,omitempty"`
	// Required says that it was asked for by name: that it is not there is a failure.
	Required bool `json:"required,omitempty"`
}

// Alone says that the stack reaches no other process.
func (s Stack) Alone() bool { return s.Self || s.Via == "btl "+SelfBTL }

// Transport is the kind of the component that moves the stack's messages ("btl" or
// "mtl"), and its name; empty for a PML with a transport of its own.
func (s Stack) Transport() (kind, name string) {
	kind, name, _ = strings.Cut(s.Via, " ")
	return kind, name
}

// Absent is the outcome of OpenCase of a stack that has a Reason. What is broken is
// told from what is not there.
func (s Stack) Absent() Status {
	switch {
	case s.Hangs:
		return Timeout
	case s.Refused:
		return Refused
	}
	return Unavailable
}

// Missing says in words why there is no such stack, or "" if there is one.
func (s Stack) Missing() string {
	if s.Reason == "" {
		return ""
	}
	return string(s.Absent()) + ": " + s.Reason
}

// SelfBTL carries what a process sends to itself. Every stack of BTLs has it.
const SelfBTL = "self"

// A Row is the outcome of one case of one stack.
type Row struct {
	Stack    string  `json:"stack"`
	Provider string  `json:"provider"`
	Case     string  `json:"case"` // "open", "mtltest/NAME", "pmltest/lazy/NAME", "conform/2/FAMILY/NAME", "bench/latency"
	Status   Status  `json:"status"`
	Reason   string  `json:"reason"` // never empty unless Status is Pass
	Seconds  float64 `json:"seconds"`
	Ranks    int     `json:"ranks,omitempty"` // of a case that runs as a job
	// GivenUp says of a Skip that the stack was given up before this case: too many
	// before it were lost, or did not end. Nobody knows what would have become of it.
	GivenUp bool `json:"given_up,omitempty"`
	// Excluded is the reason of the exclusion that applies: a row that would fail is
	// a Skip, whose Reason says both; one that passes is reported.
	Excluded string `json:"excluded,omitempty"`
	// Retried is the reason of the second try that the row is about.
	Retried string `json:"retried,omitempty"`
	// Command runs this case again, by itself.
	Command string `json:"command,omitempty"`
	// Output is the end of what the processes of a case that did not pass have
	// written.
	Output string `json:"output,omitempty"`
	// Points are the figures of a benchmark.
	Points []Point `json:"points,omitempty"`
}

// A Point is a figure of a benchmark at one size of message.
type Point struct {
	Size  int     `json:"size"` // bytes
	Value float64 `json:"value"`
	Unit  string  `json:"unit"` // "us", "MB/s", "msg/s"
}

// Machine is where a report was made.
type Machine struct {
	Host      string    `json:"host"`
	Kernel    string    `json:"kernel"`
	CPU       string    `json:"cpu"`
	Cores     int       `json:"cores"`
	Ferry     string    `json:"ferry"` // its version
	Libraries []Library `json:"libraries"`
}

// A Library is one that a stack stands on, as found at run time.
type Library = version.Library

// A Report is all that a run has found.
type Report struct {
	Suite   string    `json:"suite"` // "quick" or "full"
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Partial says why the run ended before its time; empty if it did not.
	Partial string `json:"partial,omitempty"`
	// Notes are remarks on the run as a whole, such as exclusions that nothing needs.
	Notes   []string `json:"notes,omitempty"`
	Machine Machine  `json:"machine"`
	Stacks  []Stack  `json:"stacks"`
	Rows    []Row    `json:"rows"`
}

// Retries returns a remark for each row of a second try.
func (r *Report) Retries() (notes []string) {
	for _, row := range r.Rows {
		if row.Retried != "" {
			notes = append(notes, fmt.Sprintf("%s %s: %s in the second try, because %s", row.Stack, row.Case, row.Status, row.Retried))
		}
	}
	return notes
}

// An Observer hears how a run goes. Calls come one at a time.
type Observer interface {
	// Begin comes once, with all stacks and the number of cases that each will run.
	Begin(stacks []Stack, cases map[string]int)
	// Running says that a stack has begun a case.
	Running(stack, testCase string)
	// Done says what became of a case.
	Done(Row)
}

// ThisMachine describes the machine and the program; what it can't find out is
// "unknown".
func ThisMachine() Machine {
	m := Machine{Host: "unknown", Kernel: "unknown", CPU: cpu.Model(), Cores: runtime.NumCPU(), Ferry: version.String()}
	if name, err := os.Hostname(); err == nil {
		m.Host = name
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = strings.Join([]string{
			unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]),
		}, " ")
	}
	return m
}

// Libraries are those that the stacks stand on, each once.
func Libraries(stacks []Stack) []Library {
	var all []Library
	seen := map[string]bool{}
	for _, s := range stacks {
		name, its, _ := strings.Cut(s.Library, " ")
		if name != "" && !seen[s.Library] {
			seen[s.Library] = true
			all = append(all, Library{Name: name, Version: its})
		}
	}
	return all
}
