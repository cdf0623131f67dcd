package btl

import "github.com/ferrympi/ferry/framework"

// Remote describes memory of a process so that a peer can read it: opaque to
// protocols, fixed size so that it fits into a header. The zero value describes
// nothing.
type Remote [32]byte

// RemoteReader is an optional ability of a Module (ask through framework.As):
// the receiver of a large message copies it straight out of the sender's memory,
// one copy instead of two.
//
// A protocol sends what Expose returned along with its offer; the receiver asks
// CanRead, calls Read until it has all, and tells the sender, who keeps the
// memory as it is until then. Where CanRead or Read return an error the message
// goes as frames.
type RemoteReader interface {
	// Expose describes buf, memory of this process that stays where it is and
	// unchanged until the operation that carries the description ends. registered
	// is true for memory from Allocate; a module may find that out for itself. ok
	// is false when peers can't read it. It keeps nothing.
	Expose(buf []byte, registered bool) (r Remote, ok bool)

	// CanRead reports whether this process may read what peer exposes, decided
	// once per peer by a real copy, and why not. size, the bytes to be read, lets
	// the module prefer other ways for messages of that length (nil error: one
	// copy by the reader is the way to go). It does not allocate once a peer's
	// ways are decided.
	CanRead(peer framework.Life, r Remote, size int64) error

	// Read copies len(dst) bytes at offset of what peer exposed into dst. It takes
	// bounded time per call: it may copy less, but at least one byte unless dst
	// is empty. Nothing outside of what r describes is read, whatever the peer
	// wrote into r. An error means that this way does not work (any more) with
	// this peer; the module remembers it, only for that peer; the protocol falls
	// back to frames.
	Read(peer framework.Life, r Remote, offset int64, dst []byte) (n int, err error)

	// Allocate returns zeroed memory that peers on the node read directly; Free
	// gives it back when no operation uses it. It is not part of Go's heap:
	// touching it after Free is a crash. bytes is at least 1. What doesn't fit is
	// an error that says how much is missing. Allocate and Free may be called
	// with or without the engine's lock; without is better, because the system
	// clears the memory meanwhile. Close frees what is left.
	Allocate(bytes int) ([]byte, error)

	// Free takes the slice that Allocate returned; anything else, a part of it or
	// one that is free already is an error, and nothing happens.
	Free([]byte) error

	// Notes says, per peer, which ways are on or off and why, for explain. It may
	// try out a way that has not been used yet.
	Notes(peer framework.Life) []string
}
