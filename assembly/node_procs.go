package assembly

import (
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// nodeProcs are the processes that share the node now. These are this process, those of its WORLD
// on the node until an incarnation of theirs ends, and others once their cards have come. The
// engine has their number (progress.Engine.SetNodeProcs). Guarded by Assembly.mu.
type nodeProcs struct {
	processEngine *progress.Engine
	// They have the number, too.
	streamEngines []*progress.Engine
	machineRanks  []uint32 // See bootstrap.Identity.
	// By all nodes (bootstrap.Identity.IsDivided).
	isMachineShared bool
	// Of the present incarnation; 0 until the card has come.
	nonceByID map[framework.ProcID]uint64

	runningWireUps int
	// Incarnations that have ended during the wire-ups in progress.
	endedInWireUps map[framework.Incarnation]struct{}
}

func newNodeProcs(env *progress.Env) nodeProcs {
	n := nodeProcs{processEngine: env.Engine, machineRanks: env.Identity.MachineRanks(), isMachineShared: env.Identity.IsDivided, nonceByID: map[framework.ProcID]uint64{}, endedInWireUps: map[framework.Incarnation]struct{}{}}
	for _, rank := range n.machineRanks {
		n.nonceByID[framework.MakeProcID(0, rank)] = 0
	}
	n.nonceByID[env.Self.ID] = env.Self.Nonce
	n.publish()
	return n
}

func (n *nodeProcs) publish() {
	n.processEngine.SetNodeProcs(len(n.nonceByID))
	for _, e := range n.streamEngines {
		e.SetNodeProcs(len(n.nonceByID))
	}
}

// setStreams replaces the engines of streams. All engines of the process follow their number.
func (n *nodeProcs) setStreams(streams []*progress.Engine) {
	n.streamEngines = streams
	for _, e := range append(slices.Clone(streams), n.processEngine) {
		e.SetStreams(len(streams))
	}
	n.publish()
}

// arrive adds the process of a card from a wire-up. here reports that the card is of this node. A launcher may count several containers as one
// node. Their processes share the processors.
func (n *nodeProcs) arrive(incarnation framework.Incarnation, here bool) {
	_, hasEnded := n.endedInWireUps[incarnation]
	if (here || n.isOnMachine(incarnation)) && !hasEnded {
		n.nonceByID[incarnation.ID] = incarnation.Nonce
		n.publish()
	}
}

// isOnMachine reports whether a process shares the processors, as the launcher reports.
func (n *nodeProcs) isOnMachine(incarnation framework.Incarnation) bool {
	if n.isMachineShared || incarnation.ID.World() != 0 {
		return n.isMachineShared
	}
	_, found := slices.BinarySearch(n.machineRanks, incarnation.ID.Rank())
	return found
}

// end removes the process of an incarnation that has ended, unless the card of another one has
// come. Nonce 0 stands for any incarnation. The card of the incarnation may come later, by a
// wire-up in progress.
func (n *nodeProcs) end(incarnation framework.Incarnation) {
	if n.runningWireUps > 0 {
		n.endedInWireUps[incarnation] = struct{}{}
	}
	if nonce, ok := n.nonceByID[incarnation.ID]; ok && (nonce == 0 || incarnation.Nonce == 0 || nonce == incarnation.Nonce) {
		delete(n.nonceByID, incarnation.ID)
		n.publish()
	}
}

// beginWireUp and endWireUp enclose each wire-up.
func (n *nodeProcs) beginWireUp() { n.runningWireUps++ }

func (n *nodeProcs) endWireUp() {
	if n.runningWireUps--; n.runningWireUps == 0 {
		clear(n.endedInWireUps)
	}
}
