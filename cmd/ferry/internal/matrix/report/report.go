// Package report has the results of `ferry matrix` and their summary. It prints them as text, live on a terminal, as an
// HTML page, as JSON and as JUnit's XML. It does not run cases.
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

// Status is the outcome of a case.
type Status string

// Outcomes of cases. A case that exceeds its limit is a Timeout, and one whose process was lost is a Fail.
const (
	Pass        Status = "pass"
	Fail        Status = "fail"
	Skip        Status = "skip"        // Not applicable, excluded, or not run (see Row.IsAbandoned). The reason has the details.
	Timeout     Status = "timeout"     // Did not end.
	Refused     Status = "refused"     // Available, but not used because of a defect.
	Unavailable Status = "unavailable" // Not available in this machine or program.
)

// Statuses lists the statuses, the worst first.
var Statuses = []Status{Fail, Timeout, Refused, Unavailable, Skip, Pass}

// Absent reports whether a stack was not tried, because it is unavailable or not used.
func (s Status) Absent() bool { return s == Refused || s == Unavailable }

// OpenCase is the case of every stack that opens it. If it fails, the stack has no other cases.
const OpenCase = "open"

// A Stack is a selection of components that transfer messages.
type Stack struct {
	Name string `json:"name"` // "ob1+shm", "cm+ofi tcp;ofi_rxm"
	PML  string `json:"pml"`  // "cm"
	// Transport component, such as "btl shm" or "mtl ofi".
	ViaComponent string `json:"via,omitempty"`
	// "tcp;ofi_rxm", or "" for a transport without providers.
	Provider string `json:"provider,omitempty"`
	Device   string `json:"device,omitempty"` // "eth0"
	// Of an MTL.
	TagLayout string `json:"mode,omitempty"`
	// Name and version of the transport's library.
	Library string `json:"library,omitempty"`
	// SetParams has the parameters (NAME=VALUE, as for --set) that select only this stack.
	SetParams []string `json:"set,omitempty"`
	// AbsentReason is the reason why the stack is not used, or "".
	AbsentReason string `json:"reason,omitempty"`
	// SurveyHangs reports that the survey of its provider did not end, so that its availability is unknown.
	SurveyHangs bool `json:"hangs,omitempty"`
	// IsRefused reports that it is available, but not used because of the defect in AbsentReason.
	IsRefused bool `json:"refused,omitempty"`
	// ReachesOnlySelf reports that its transport reaches only its own process.
	ReachesOnlySelf bool `json:"self,omitempty"`
	// IsRequired reports that the stack was selected by name. Its absence is a failure.
	IsRequired bool `json:"required,omitempty"`
}

// Alone reports whether the stack reaches no other process.
func (s Stack) Alone() bool { return s.ReachesOnlySelf || s.ViaComponent == "btl "+SelfBTL }

// Transport returns the kind ("btl" or "mtl") and the name of the stack's transport component, or "" for a PML without transport
// components.
func (s Stack) Transport() (kind, name string) {
	kind, name, _ = strings.Cut(s.ViaComponent, " ")
	return kind, name
}

// Absent returns the status of OpenCase for a stack with an AbsentReason.
func (s Stack) Absent() Status {
	switch {
	case s.SurveyHangs:
		return Timeout
	case s.IsRefused:
		return Refused
	}
	return Unavailable
}

// Missing describes why the stack is not used, or returns "".
func (s Stack) Missing() string {
	if s.AbsentReason == "" {
		return ""
	}
	return string(s.Absent()) + ": " + s.AbsentReason
}

// SelfBTL carries messages of a process to itself in every stack of BTLs.
const SelfBTL = "self"

// A Row is the outcome of one case of one stack.
type Row struct {
	Stack    string `json:"stack"`
	Provider string `json:"provider"`
	Case     string `json:"case"` // "open", "mtltest/NAME", "pmltest/lazy/NAME", "conform/2/FAMILY/NAME", "bench/latency"
	Status   Status `json:"status"`
	// Not empty unless Status is Pass.
	Reason  string  `json:"reason"`
	Seconds float64 `json:"seconds"`
	// Set for a case that runs as a job.
	RankCount int `json:"ranks,omitempty"`
	// IsAbandoned reports that a Skip was not run because too many cases before it were lost or did not end.
	IsAbandoned bool `json:"given_up,omitempty"`
	// ExclusionReason is set for an excluded case. A failed row becomes a Skip with both reasons. One that passes is reported.
	ExclusionReason string `json:"excluded,omitempty"`
	// RetryReason is the reason for the second try that has this outcome.
	RetryReason string `json:"retried,omitempty"`
	// Command runs this case alone.
	Command string `json:"command,omitempty"`
	// OutputTail is the end of the output of the processes, if the case did not pass.
	OutputTail string `json:"output,omitempty"`
	// Points are the figures of a benchmark.
	Points []Point `json:"points,omitempty"`
}

// A Point is a figure of a benchmark at one message size.
type Point struct {
	Size  int     `json:"size"` // bytes
	Value float64 `json:"value"`
	Unit  string  `json:"unit"` // "us", "MB/s", "msg/s"
}

// Machine describes the machine of a report.
type Machine struct {
	Host         string    `json:"host"`
	Kernel       string    `json:"kernel"`
	CPU          string    `json:"cpu"`
	CoreCount    int       `json:"cores"`
	FerryVersion string    `json:"ferry"`
	Libraries    []Library `json:"libraries"`
}

// A Library is one that a stack stands on, as found at run time.
type Library = version.Library

// A Report has the results of a run.
type Report struct {
	Suite     string    `json:"suite"` // "quick" or "full"
	StartedAt time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`
	// EndReason is the reason of an early end of the run, or "".
	EndReason string `json:"partial,omitempty"`
	// Notes are remarks on the run as a whole, such as unused exclusions.
	Notes   []string `json:"notes,omitempty"`
	Machine Machine  `json:"machine"`
	Stacks  []Stack  `json:"stacks"`
	Rows    []Row    `json:"rows"`
}

// Retries returns a remark for each row of a second try.
func (r *Report) Retries() (notes []string) {
	for _, row := range r.Rows {
		if row.RetryReason != "" {
			notes = append(notes, fmt.Sprintf("%s %s: %s in the second try, because %s", row.Stack, row.Case, row.Status, row.RetryReason))
		}
	}
	return notes
}

// An Observer is notified of the progress of a run. Calls are serialized.
type Observer interface {
	// Begin is called once, with all stacks and their numbers of cases.
	Begin(stacks []Stack, cases map[string]int)
	// Running reports that a stack has begun a case.
	Running(stack, testCase string)
	// Done reports the outcome of a case.
	Done(Row)
}

// ThisMachine describes the machine and the program. Unknown properties are "unknown".
func ThisMachine() Machine {
	m := Machine{Host: "unknown", Kernel: "unknown", CPU: cpu.Model(), CoreCount: runtime.NumCPU(), FerryVersion: version.String()}
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

// Libraries lists the libraries of the stacks, each once.
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
