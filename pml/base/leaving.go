package base

import (
	"math"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// How a process ends.
//
// A process that closes its last session leaves. It sends a goodbye with the number of its messages to
// this process. Later sends to it fail. Sends in progress get some time, since the goodbye may overtake
// their acknowledgment. Receives from it continue until all of its messages are received or claimed.
// A PML searches for those that no receive matches. When no message is missing, or enough searches were
// fruitless, the process has left. With a transport that keeps order and reports the end of a path,
// a process has left at once.
//
// A process that fails, or becomes unreachable, ends at once.

// Unknown is the number of messages of a process that has left without a goodbye.
const Unknown = math.MaxUint64

// Sends in progress to a leaving process get graceSteps steps, at least FirstGap apart. Searches for
// its messages start FirstGap apart, and their interval grows up to LastGap.
const (
	graceSteps = 10
	FirstGap   = 2 * time.Millisecond
	LastGap    = 250 * time.Millisecond
)

// ExitAction is a set of actions that a PML performs for a leaving process.
type ExitAction uint8

const (
	// FailSends fails all sends to it that are not submitted to the network.
	FailSends ExitAction = 1 << iota
	// AbortSends makes the transport abort the submitted sends.
	AbortSends
	// SearchMessages searches for its messages. The PML calls FinishSearch after a complete search.
	SearchMessages
	// EndReceives fails receives from it, because it has left.
	EndReceives
)

// Exit is the state of one process's end, as another process observes it. It is a pure state machine.
// Its methods are events, and return actions. No method allocates. The zero Exit is that of a present
// process.
type Exit struct {
	// Received and Claimed count the messages of the process that were received, and those that
	// were claimed otherwise. The PML updates them.
	Received, Claimed uint64

	// goodbyeTotal is the number of messages in the goodbye.
	goodbyeTotal uint64
	// lastAccounted is Received+Claimed at the end of the last search.
	lastAccounted uint64
	stepInterval  time.Duration
	// maxFruitless bounds fruitlessSearches, which counts those in a row at LastGap.
	maxFruitless      int
	fruitlessSearches int
	// graceStepsLeft is the number of steps until submitted sends are aborted.
	graceStepsLeft int
	state          framework.PeerState
	hasAborted     bool
}

// PeerState returns the condition of the process.
func (x *Exit) PeerState() framework.PeerState { return x.state }

// HasEnded reports whether no more messages of the process can come.
func (x *Exit) HasEnded() bool { return x.state.HasEnded() }

// HasFailed reports whether the process has ended without having left.
func (x *Exit) HasFailed() bool { return x.state > framework.Left }

// Goodbye handles the departure of the process. total is the number of its messages to this process, or
// Unknown. A number may follow Unknown. patience bounds the fruitless searches in a row, LastGap
// apart. The first call returns FailSends, and the PML calls NextStep from then on. Later calls return 0.
func (x *Exit) Goodbye(total uint64, patience int) ExitAction {
	switch x.state {
	case framework.Alive:
		x.state, x.goodbyeTotal, x.maxFruitless = framework.Leaving, total, patience
		x.stepInterval, x.graceStepsLeft = FirstGap, graceSteps
		return FailSends
	case framework.Leaving:
		x.goodbyeTotal = min(x.goodbyeTotal, total)
	}
	return 0
}

// StepInterval returns the interval between the last step and the next.
func (x *Exit) StepInterval() time.Duration { return x.stepInterval }

// NextStep handles the end of the interval StepInterval, or continues a search. The result has
// AbortSends once, and SearchMessages or EndReceives, or is 0.
func (x *Exit) NextStep() (f ExitAction) {
	if x.state != framework.Leaving {
		return 0
	}
	if x.graceStepsLeft > 0 {
		if x.graceStepsLeft--; x.graceStepsLeft > 0 {
			return 0
		}
	}
	if x.MarkAborted() {
		f = AbortSends
	}
	if x.Received+x.Claimed >= x.goodbyeTotal || x.fruitlessSearches >= x.maxFruitless {
		return f | EndReceives
	}
	return f | SearchMessages
}

// FinishSearch handles the end of a complete search for the process's messages.
func (x *Exit) FinishSearch() {
	switch found := x.Received + x.Claimed; {
	case found > x.lastAccounted:
		x.lastAccounted, x.fruitlessSearches, x.stepInterval = found, 0, FirstGap
	case x.stepInterval < LastGap:
		x.stepInterval = min(2*x.stepInterval, LastGap)
	default:
		x.fruitlessSearches++
	}
}

// SetEnded sets the state of the process, which has ended. It returns false if that was known. Failed replaces
// Unreachable.
func (x *Exit) SetEnded(state framework.PeerState) bool {
	if x.HasEnded() && !(x.state == framework.Unreachable && state == framework.Failed) {
		return false
	}
	x.state = state
	return true
}

// MarkAborted returns true at its first call, when the transport must abort its sends to the process.
func (x *Exit) MarkAborted() bool {
	first := !x.hasAborted
	x.hasAborted = true
	return first
}
