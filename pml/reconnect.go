package pml

import "github.com/ferrympi/ferry/framework"

// Reconnector is an optional interface of a Module. It reconnects processes after a disconnect, on communicators that are
// created later.
type Reconnector interface {
	// EndedPeers returns the incarnations of other processes that have not failed, and exchange no more messages with this one.
	// Some may have closed their session.
	EndedPeers() []framework.Incarnation
	// Reconnect ends all pending operations with an incarnation of another process, and removes its paths. The caller then
	// passes its newest card to Learn, after both ends have been renewed. The other process's first frames may come before
	// that. A failed incarnation stays failed. Disconnect is not called.
	Reconnect(peer framework.Incarnation)
}
