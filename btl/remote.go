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

// Memory is what kind of memory a Remote describes.
type Memory uint8

// Kinds of memory.
const (
	Ordinary  Memory = iota // of the peer alone
	Allocated               // from Allocate: mapped by both
	Memories                // how many kinds there are
)

// Copier is an optional ability of a module that is a RemoteReader: the sender of a large
// message writes it into the receiver's memory, alone or while the receiver reads.
//
// The receiver of a message opens a Share of its buffer, whose description travels to the
// sender. Both claim pieces of it, the receiver from the front and the sender from the end.
// A message is whole when nothing is left to claim and the sender has written what it has
// claimed. Nothing is written after Share.End has said that it is over.
type Copier interface {
	// KindOf says what kind of memory a peer describes.
	KindOf(r Remote) Memory

	// Forced says why a message of that size that a peer describes so must not go as frames;
	// nil: it may. Where CanRead refuses, the message fails with both reasons.
	Forced(r Remote, size int64) error

	// CanWrite reports whether this process may write into memory that peer shares, decided
	// once per peer by a real copy, and why not.
	CanWrite(peer framework.Life) error

	// Share lets peer write into buf, memory of this process that is the caller's until the
	// share is over. nil: there is no place for one now, or no path from peer.
	Share(peer framework.Life, buf []byte) Share

	// Write claims one piece of what peer shares as r describes it, and copies it there out
	// of src, which is as long as that. more is false when nothing is left to claim. An error
	// means that this way does not work (any more) with this peer: what was claimed last is
	// left for the receiver again, which is told. It takes bounded time.
	Write(peer framework.Life, r Remote, src []byte) (more bool, err error)
}

// Share is a buffer of this process into which a peer may write.
type Share interface {
	// Remote describes it to the peer.
	Remote() Remote
	// Claim claims the next piece from the front, for the caller to copy. n is 0 if none is
	// left.
	Claim() (offset int64, n int)
	// State says how it stands: left is true while there is something to claim, writing
	// while a piece that the peer has claimed is not complete, and stopped when the peer
	// claims nothing more because it can't write.
	State() (left, writing, stopped bool)
	// End claims all that is left, and reports whether the peer writes nothing more. If it
	// does still, the caller asks again. Once it is over the share may be used for
	// another buffer.
	End() (over bool)
}
