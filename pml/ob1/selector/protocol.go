// Package selector names the rendezvous protocols, which transfer the payload of large
// messages, and selects one of them for each message by a [learner.Selector].
package selector

import "github.com/ferrympi/ferry/internal/learner"

// Protocol is a rendezvous protocol.
type Protocol uint8

const (
	// Pipeline copies fragments through a small part of the ring, which the caches hold.
	Pipeline Protocol = iota
	// Get lets the receiver copy out of the sender's memory.
	Get
	// Put lets the sender copy into the receiver's memory.
	Put
	// Split lets both sides copy chunks of the message at the same time.
	Split
	// PipelineFull copies fragments through the whole ring.
	PipelineFull
	// PipelineNT copies fragments with non-temporal stores.
	PipelineNT
	// Protocols is the number of protocols.
	Protocols
)

var protocolNames = [Protocols]string{"pipeline", "get", "put", "split", "pipeline-full", "pipeline-nt"}

func (p Protocol) String() string { return protocolNames[p] }

type (
	// Set is a set of protocols.
	Set = learner.Set[Protocol]
	// Costs are the costs of all protocols in ns per byte, 0 for unknown ones.
	Costs = learner.Costs
	// Selector selects protocols for messages of one kind.
	Selector = learner.Selector[Protocol]
	// GroupSelector selects protocols for groups of messages.
	GroupSelector = learner.GroupSelector[Protocol]
)

const (
	// All has every protocol.
	All = Set(1<<Protocols - 1)
	// AnyPipeline has all protocols that copy fragments through the ring.
	AnyPipeline = Set(1<<Pipeline | 1<<PipelineFull | 1<<PipelineNT)
)

// Of returns the set of the given protocols.
func Of(all ...Protocol) Set { return learner.Of(all...) }

// New returns a selector for single messages. The warm-up starts with guess.
func New(guess Protocol) Selector {
	return learner.New(learner.Shape{Options: int(Protocols), Probe: 1, Run: 4}, guess)
}

// NewWindow returns a selector for the messages of windows. Messages in flight together complete
// together, and the first ones are slow while the sender still starts the others, so that 64 of
// them are one sample.
func NewWindow(guess Protocol) Selector {
	return learner.New(learner.Shape{Options: int(Protocols), Probe: 3, Skip: 1, Run: 64}, guess)
}

// NewGroup returns a selector for groups of the given number of messages.
func NewGroup(group int, guess Protocol) GroupSelector {
	return learner.NewGroup(int(Protocols), group, guess)
}
