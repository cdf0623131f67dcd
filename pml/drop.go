package pml

import "github.com/ferrympi/ferry/framework"

// PeerDropper is an optional interface of a Module that frees the state of processes that have ended.
type PeerDropper interface {
	// DropPeer frees the state of an incarnation that has failed or has closed its last session (PeerChanged).
	// It returns false while a communicator has the process, or messages from it may arrive. Env.Droppable reports the
	// end of this condition. After true, frames, cards and reports of the incarnation leave no state.
	DropPeer(peer framework.Incarnation) bool
}
