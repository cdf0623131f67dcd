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
	engine *progress.Engine
	// Of the streams of this process. They follow the number, too.
	streams []*progress.Engine
	locals  []uint32 // bootstrap.Identity.MachineRanks
	// Processes of all nodes share this machine (bootstrap.Identity.IsDivided).
	isAll bool
	// Nonces of the present incarnations; 0 until the card has come.
	nonces map[framework.ProcID]uint64

	// Wire-ups in progress.
	wireUps int
	// Incarnations that have ended during these.
	ended map[framework.Incarnation]struct{}
}

func newNodeProcs(env *progress.Env) nodeProcs {
	n := nodeProcs{engine: env.Engine, locals: env.Identity.MachineRanks(), isAll: env.Identity.IsDivided, nonces: map[framework.ProcID]uint64{}, ended: map[framework.Incarnation]struct{}{}}
	for _, rank := range n.locals {
		n.nonces[framework.MakeProcID(0, rank)] = 0
	}
	n.nonces[env.Self.ID] = env.Self.Nonce
	n.publish()
	return n
}

func (n *nodeProcs) publish() {
	n.engine.SetNodeProcs(len(n.nonces))
	for _, e := range n.streams {
		e.SetNodeProcs(len(n.nonces))
	}
}

// setStreams replaces the engines of streams. All engines of the process follow their number.
func (n *nodeProcs) setStreams(streams []*progress.Engine) {
	n.streams = streams
	for _, e := range append(slices.Clone(streams), n.engine) {
		e.SetStreams(len(streams))
	}
	n.publish()
}

// arrive adds the process of a card from a wire-up. here reports that the card is of this node. A launcher may count several containers as one
// node. Their processes share the processors.
func (n *nodeProcs) arrive(incarnation framework.Incarnation, here bool) {
	_, hasEnded := n.ended[incarnation]
	if (here || n.isOnMachine(incarnation)) && !hasEnded {
		n.nonces[incarnation.ID] = incarnation.Nonce
		n.publish()
	}
}

// isOnMachine reports whether a process shares the processors, as the launcher reports.
func (n *nodeProcs) isOnMachine(incarnation framework.Incarnation) bool {
	if n.isAll || incarnation.ID.World() != 0 {
		return n.isAll
	}
	_, found := slices.BinarySearch(n.locals, incarnation.ID.Rank())
	return found
}

// end removes the process of an incarnation that has ended, unless the card of another one has
// come. Nonce 0 stands for any incarnation. The card of the incarnation may come later, by a
// wire-up in progress.
func (n *nodeProcs) end(incarnation framework.Incarnation) {
	if n.wireUps > 0 {
		n.ended[incarnation] = struct{}{}
	}
	if nonce, ok := n.nonces[incarnation.ID]; ok && (nonce == 0 || incarnation.Nonce == 0 || nonce == incarnation.Nonce) {
		delete(n.nonces, incarnation.ID)
		n.publish()
	}
}

// beginWireUp and endWireUp enclose each wire-up.
func (n *nodeProcs) beginWireUp() { n.wireUps++ }

func (n *nodeProcs) endWireUp() {
	if n.wireUps--; n.wireUps == 0 {
		clear(n.ended)
	}
}
