package btl

import "github.com/ferrympi/ferry/framework"

// Remote describes memory of a process for reads of a peer. It is opaque to protocols and of fixed
// size for their headers. The zero value describes no memory.
type Remote [32]byte

// RMA is an optional ability of a Module, remote memory access. The receiver of a large message
// copies it directly out of the sender's memory, with one copy instead of two.
//
// A protocol sends the result of Expose with its RTS. The receiver checks CanRead, calls Read
// until the message is complete, and acknowledges. The sender keeps the memory unchanged until
// then. After an error of CanRead or Read the protocol falls back to the pipeline.
type RMA interface {
	// Expose describes buf, memory of this process that stays unchanged and in its location
	// until the operation ends. registered is set for memory from Allocate; a module may
	// detect such memory on its own. ok is false if peers cannot read the memory. Expose
	// retains no state.
	Expose(buf []byte, registered bool) (r Remote, ok bool)

	// CanRead returns nil if this process may read exposed memory of peer and a read is the
	// best protocol for size bytes, or the reason against it. A real copy decides once per
	// peer; later calls do not allocate.
	CanRead(peer framework.Incarnation, r Remote, size int64) error

	// Read copies up to len(dst) bytes at offset of the exposed memory into dst in bounded
	// time, at least one byte unless dst is empty. It reads no memory outside of r, for any
	// contents of r. After an error the module does not read from this peer again, and the
	// protocol falls back to the pipeline.
	Read(peer framework.Incarnation, r Remote, offset int64, dst []byte) (n int, err error)

	// Allocate returns zeroed memory, at least one byte, that peers on the node read
	// directly. The memory is not part of Go's heap; an access after Free or Close crashes.
	// The error for a lack of memory states the missing size. Allocate and Free may be
	// called with or without the engine's lock, preferably without, since the system
	// clears the memory.
	Allocate(bytes int) ([]byte, error)

	// Free frees a slice that Allocate returned, after its last operation. It returns an error
	// without effect for any other slice, including a part of one and a free one.
	Free([]byte) error

	// Notes describes the protocols with a peer and their state, for explain. It may probe a
	// protocol that was not used yet.
	Notes(peer framework.Incarnation) []string

	// Copier returns the part of the ability for copies by the sender, or nil if only the
	// receiver can copy.
	Copier() Copier
}

// Memory is the kind of memory that a Remote describes.
type Memory uint8

const (
	// Ordinary is private memory of the peer.
	Ordinary Memory = iota
	// Allocated is memory from Allocate, mapped by both processes.
	Allocated
	// Memories is the number of kinds.
	Memories
)

// Copier is the part of RMA for the choice of a protocol and for copies by the sender. The sender of
// a large message writes into the receiver's memory, alone or concurrently with the reads of the
// receiver.
//
// The receiver opens a Share of its buffer and sends its description to the sender. Both claim
// chunks, the receiver from the front and the sender from the end. A message is complete when
// all chunks are claimed and the sender has written its claims. No write follows the end of the
// share.
type Copier interface {
	// KindOf returns the kind of memory that a peer describes.
	KindOf(r Remote) Memory

	// Forced returns the reason against a pipeline for a message of that size, or nil if it
	// may fall back to the pipeline. If CanRead fails too, the message fails with both reasons.
	Forced(r Remote, size int64) error

	// CanWrite returns nil if this process may write into shared memory of peer, or the
	// reason against it. A real copy decides once per peer.
	CanWrite(peer framework.Incarnation) error

	// Share permits peer to write into buf, which the caller keeps until the end of the
	// share. It returns nil without a free share or without a path from peer.
	Share(peer framework.Incarnation, buf []byte) Share

	// Write claims one chunk of the share r of peer and copies it from src, which is as long
	// as the share, in bounded time. more is false if no chunk is left. After an error the
	// module does not write to this peer again; it leaves the last chunk to the receiver
	// and notifies it.
	Write(peer framework.Incarnation, r Remote, src []byte) (more bool, err error)

	// NodeTable returns a table that the processes of the job on this node share for measurements
	// of pairs like this process and peer, with the same distance of their processors. It is nil
	// without a table, a path, or a known distance. The first call costs some system calls. All
	// calls in a job pass the same number of words. Processes of different versions share no table.
	NodeTable(peer framework.Incarnation, version uint32, words int) NodeTable
}

// NodeTable is a table of words for measurements that serve all processes of a node. The words
// are 0 at the start. Any process may store any value at any time, so that the contents are
// unvalidated. The table is valid until the module closes.
type NodeTable interface {
	// Load returns the word at index i, or 0 after access to the table is lost.
	Load(i int) uint64
	// Store replaces the word at index i. Words are independent.
	Store(i int, word uint64)
}

// Share is a buffer of this process into which a peer may write.
type Share interface {
	// Remote returns the description for the peer.
	Remote() Remote
	// Claim claims the next chunk from the front for a copy by the caller. n is 0 if no chunk
	// is left.
	Claim() (offset int64, n int)
	// State returns whether chunks are left to claim, whether a claimed chunk of the peer is
	// incomplete, and whether the peer has stopped because it cannot write.
	State() (left, writing, stopped bool)
	// End claims all remaining chunks and reports whether the peer writes no more, because its
	// last write is complete or the peer has ended in the middle of it, which State shows
	// before. Otherwise call it again. After its end the share is available for another buffer.
	End() (ended bool)
}
