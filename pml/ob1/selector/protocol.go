// Package selector selects the rendezvous protocol of a large message from the measured
// times of earlier messages of the same kind. It does not read the clock, and equal seeds
// and times lead to equal selections.
//
// A [Selector] serves messages of one kind, in general of one peer, size class and pattern
// of traffic. It measures only messages that the program sends anyway. During the warm-up
// it samples each protocol a few times. Afterwards it returns the protocol of the lowest
// estimated cost, and now and then probes another one. [MessagesPerProbe] and
// [ProbeTimeShare] bound probes for any sequence of messages. The confirmation of a new best
// protocol in use and a second trial of the former best protocol after a change of the costs
// do not count against these bounds.
package selector

// Protocol is a rendezvous protocol, which transfers the payload of a large message.
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

// AnyPipeline has all protocols that copy fragments through the ring.
const AnyPipeline = Set(1<<Pipeline | 1<<PipelineFull | 1<<PipelineNT)

// Set is a set of protocols.
type Set uint8

// All has every protocol.
const All = Set(1<<Protocols - 1)

// Of returns the set of the given protocols.
func Of(all ...Protocol) (s Set) {
	for _, p := range all {
		s |= 1 << p
	}
	return s
}

// Has reports whether p is in the set.
func (s Set) Has(p Protocol) bool { return s&(1<<p) != 0 }
