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
	engine  *progress.Engine
	streams []*progress.Engine          // Of the streams of this process. They follow the number, too.
	locals  []uint32                    // bootstrap.Identity.OnMachine
	isAll   bool                        // Processes of all nodes share this machine (bootstrap.Identity.Divided).
	nonces  map[framework.ProcID]uint64 // Nonces of the present incarnations; 0 until the card has come.

	wireUps int                         // Wire-ups in progress.
	ended   map[framework.Life]struct{} // Incarnations that have ended during these.
}

func newNodeProcs(env *progress.Env) nodeProcs {
	n := nodeProcs{engine: env.Engine, locals: env.Identity.MachineRanks(), isAll: env.Identity.IsDivided, nonces: map[framework.ProcID]uint64{}, ended: map[framework.Life]struct{}{}}
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
func (n *nodeProcs) arrive(life framework.Life, here bool) {
	_, hasEnded := n.ended[life]
	if (here || n.isOnMachine(life)) && !hasEnded {
		n.nonces[life.ID] = life.Nonce
		n.publish()
	}
}

// isOnMachine reports whether a process shares the processors, as the launcher reports.
func (n *nodeProcs) isOnMachine(life framework.Life) bool {
	if n.isAll || life.ID.World() != 0 {
		return n.isAll
	}
	_, found := slices.BinarySearch(n.locals, life.ID.Rank())
	return found
}

// end removes the process of an incarnation that has ended, unless the card of another one has
// come. Nonce 0 stands for any incarnation. The card of the incarnation may come later, by a
// wire-up in progress.
func (n *nodeProcs) end(life framework.Life) {
	if n.wireUps > 0 {
		n.ended[life] = struct{}{}
	}
	if nonce, ok := n.nonces[life.ID]; ok && (nonce == 0 || life.Nonce == 0 || nonce == life.Nonce) {
		delete(n.nonces, life.ID)
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
