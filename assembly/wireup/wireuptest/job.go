// Package wireuptest is a model of a job in which the members of a group run wireup.Create, each as a coroutine. Time is simulated.
// Equal jobs have equal results.
package wireuptest

import (
	"math/rand/v2"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// LogGP are the parameters of a network (Alexandrov et al., 1995), which here sends a message of k bytes in Latency+k*PerByte.
type LogGP struct {
	// L, from process to process.
	Latency time.Duration
	// o, of the processor, at each end.
	Overhead time.Duration
	// g, between two messages of a process.
	Gap time.Duration
	// G, in nanoseconds.
	PerByte float64
}

// bytes returns the time for the bytes of a message.
func (n LogGP) bytes(k int) time.Duration { return time.Duration(float64(k) * n.PerByte) }

// Machine is the networks of a job.
type Machine struct {
	// Messages within a node.
	Node LogGP
	// Messages between nodes.
	Network LogGP
	// Messages of the bootstrap.
	Launcher         LogGP
	DeathReportDelay time.Duration
}

// Default is a machine with a network of 25 GB/s, and a bootstrap over TCP.
var Default = Machine{
	Node:             LogGP{Latency: 300 * time.Nanosecond, Overhead: 150 * time.Nanosecond, Gap: 100 * time.Nanosecond, PerByte: 0.1},
	Network:          LogGP{Latency: 2 * time.Microsecond, Overhead: 300 * time.Nanosecond, Gap: 200 * time.Nanosecond, PerByte: 0.04},
	Launcher:         LogGP{Latency: 30 * time.Microsecond, Overhead: 5 * time.Microsecond, Gap: 5 * time.Microsecond, PerByte: 1},
	DeathReportDelay: time.Millisecond,
}

// Namespace is the namespace of all members.
const Namespace = "model"

// Ranks returns a group of processes with the ranks first, first+stride and so on.
func Ranks(first, stride, count int) framework.Procs {
	var b framework.ProcsBuilder
	for i := range count {
		b.Add(framework.Proc{Namespace: Namespace, Rank: uint32(first + i*stride)})
	}
	return b.Procs()
}

// Job is one creation. The zero values of optional fields have no effect.
type Job struct {
	Machine Machine
	NodeMap bootstrap.NodeMap
	Group   framework.Procs
	Timeout time.Duration
	// Payload returns the payload of a member at level 0. At other levels its GroupIDs and GroupEnded are removed. Nil: a small one.
	Payload func(member int) wireup.Payload
	// Random, if not nil, draws the latencies and the order of the calls.
	Random *rand.Rand
	Faults []Fault
	// AcceptTable, if not nil, is called when a member accepts a table. An error makes the creation fail.
	AcceptTable func(member int, t *wireup.Table) error
	// Of the nodes, and of processes other than the node roots.
	HasNoSharedMemory, CannotOpenMemory bool
	// AlterMessage, if not nil, returns the bytes that a member receives in place of a message.
	AlterMessage func(from, to int, message []byte) []byte
	// IsSingle makes a single construct of all members in place of levels. The outcomes have no table.
	IsSingle bool
	// TraceStep, if not nil, receives each step.
	TraceStep func(format string, args ...any)
}

// FaultKind is the kind of an injected fault.
type FaultKind int

const (
	Late   FaultKind = iota // The member calls after all deadlines.
	Absent                  // The member never calls.
	Other                   // The member calls with another value of bootstrap.roots_from.
	Die                     // The member dies at a step.
	Cancel                  // The context of the member ends at a step.
	Hang                    // The member stops at a step, and no process learns of it.
)

func (k FaultKind) String() string {
	return [...]string{"late", "absent", "other", "die", "cancel", "hang"}[k]
}

// Fault is an injected fault. The steps of a member are its calls of Port and Comm, from 0.
type Fault struct {
	Member int
	Kind   FaultKind
	AtStep int
	// Otherwise it happens before the step.
	IsDuringWait bool
}

// Outcome is the end of one member.
type Outcome struct {
	// Nil after an error.
	Table     *wireup.Table
	Err       error
	HasCalled bool
	HasDied   bool
	// A context id, or 0.
	RefusedID uint64
	// From the start of the job to the member's return.
	Elapsed   time.Duration
	StepCount int
	// Processes that it exchanged messages with, at any level.
	PeerCount int
	Counts
}

// Counts are the messages and bytes of one process or of all.
type Counts struct {
	MessageCount int
	MessageBytes int64
	// Payloads and results that were sent through the bootstrap.
	LauncherBytes int64
}

func (c *Counts) add(o Counts) {
	c.MessageCount += o.MessageCount
	c.MessageBytes += o.MessageBytes
	c.LauncherBytes += o.LauncherBytes
}

// Result is the end of a job.
type Result struct {
	Layout *wireup.Layout
	// By rank in the group.
	Outcomes []Outcome
	// Length of a chain of messages, those of the bootstrap included.
	LongestChain int
	Elapsed      time.Duration
	TotalCounts  Counts
	// MostLauncherBytes is the largest number of bytes that a process sent through the bootstrap.
	MostLauncherBytes int64
}

// Run runs a job to its end.
func (j Job) Run() Result {
	w := newWorld(j)
	w.run()
	r := Result{Layout: w.layout, Outcomes: make([]Outcome, len(w.procs))}
	for i, p := range w.procs {
		p.outcome.Counts = p.counts
		p.outcome.StepCount, p.outcome.PeerCount = p.stepCount, len(p.contactedPeers)
		r.Outcomes[i] = p.outcome
		r.LongestChain = max(r.LongestChain, p.chainDepth)
		r.Elapsed = max(r.Elapsed, p.outcome.Elapsed)
		r.TotalCounts.add(p.counts)
		r.MostLauncherBytes = max(r.MostLauncherBytes, p.counts.LauncherBytes)
	}
	return r
}
