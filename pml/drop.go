package pml

import "github.com/ferrympi/ferry/framework"

// PeerDropper is an optional ability of a Module to free the state of processes that have ended.
type PeerDropper interface {
	// DropPeer frees the state of a life that has failed or has closed its last session (PeerFailed, PeerGone).
	// It returns false while a communicator has the process, or messages from it may arrive; Env.Droppable
	// reports the end of this condition. After true, frames, cards and reports of the life leave no state.
	DropPeer(peer framework.Life) bool
}
