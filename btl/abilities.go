package btl

import (
	"encoding/binary"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Optional abilities of modules and endpoints, and RMA. A protocol looks up each ability once with
// framework.As, after the open of the module or of a path. The calling rules of the package apply.

// ShortHeader is the header of a short frame, three little-endian words.
type ShortHeader struct{ First, Second, Third uint64 }

// ShortHeaderSize is the size of a ShortHeader in bytes.
const ShortHeaderSize = 24

// Put writes ShortHeaderSize bytes.
func (h ShortHeader) Put(b []byte) {
	_ = b[ShortHeaderSize-1]
	binary.LittleEndian.PutUint64(b[0:], h.First)
	binary.LittleEndian.PutUint64(b[8:], h.Second)
	binary.LittleEndian.PutUint64(b[16:], h.Third)
}

// ShortSender is an optional ability of an Endpoint that sends a frame at a lower cost than
// Reserve and Commit.
type ShortSender interface {
	// SendShort sends one frame of at most FrameLimit bytes, a header and a copy of payload.
	// It reports false without effect if it would block. It drops a reservation.
	SendShort(h ShortHeader, payload []byte) bool
}

// SendShort implements ShortSender.SendShort with Reserve and Commit.
func SendShort(e Endpoint, h ShortHeader, payload []byte) bool {
	n := ShortHeaderSize + len(payload)
	b := e.Reserve(n, RingStart)
	if b == nil {
		return false
	}
	h.Put(b)
	copy(b[ShortHeaderSize:], payload)
	e.Commit(n)
	return true
}

// Short returns the ShortSender of an endpoint, or one based on Reserve and Commit.
func Short(e Endpoint) ShortSender {
	if s, ok := framework.As[ShortSender](e); ok {
		return s
	}
	return byReserve{e}
}

type byReserve struct{ Endpoint }

func (e byReserve) SendShort(h ShortHeader, payload []byte) bool {
	return SendShort(e.Endpoint, h, payload)
}

// GatherHeader is the largest header of Gather in bytes.
const GatherHeader = 64

// Gatherer is an optional ability of an Endpoint that sends a payload without a copy.
type Gatherer interface {
	// Gather sends one frame of at most FrameLimit bytes, a copy of a header of 1 to
	// GatherHeader bytes and a payload of at least one byte. It reports false without effect
	// if it would block. Otherwise the payload must stay unchanged until the module calls c,
	// once, possibly before Gather returns. Gather drops a reservation.
	//
	// All calls of c precede PathDown and PeerChanged, and the return of Close of the endpoint.
	// The module then drops unsent frames and reads no payload any longer. Idle is false
	// before the last call of c.
	Gather(header, payload []byte, c LocalCompletion) bool
}

// LocalCompletion handles the local completion of a payload.
type LocalCompletion interface {
	// LocallyComplete returns the payload to its owner. It is called with the engine's lock
	// held, from Gather, Close of the endpoint, or Poll. It must not call the endpoint.
	LocallyComplete()
}

// Forgetter is an optional ability of a Module that holds state per peer.
type Forgetter interface {
	// Forget frees the state of a failed peer. Its received frames have been polled.
	Forget(peer framework.Incarnation)
}

// Reconnector is an optional ability of a Module that can reconnect to a peer in a new epoch.
type Reconnector interface {
	// Reconnect frees the state of all paths with a peer that is alive, after one side
	// disconnected the other. The module reports no further event of these paths. New paths
	// open after both processes have called Reconnect.
	Reconnect(peer framework.Incarnation)
}

// FullPoller is an optional ability of a Module with a Poll that may skip costly sources.
type FullPoller interface {
	// PollAll is a complete Poll. A result of 0 means that no event is pending.
	PollAll() int
}

// Describer is an optional ability of a Module that describes its paths for users.
type Describer interface {
	// Describe returns the present or expected path to peer. It sends no frame.
	Describe(peer framework.Peer) Description
}

// Description describes the path to one peer.
type Description struct {
	// Devices of both ends; replaces Caps.Device unless empty.
	Device string
	// Connections and their states.
	Notes []string
	// Unused addresses of both ends, with reasons.
	Unused     []framework.Rejection
	Reconnects uint64
	// Retransmitted frames.
	Resent uint64
}

// PeerPoller is an optional ability of a Module that polls one peer at a lower cost than Poll, for
// blocking receives from a known source.
type PeerPoller interface {
	// PeerSource returns a source that polls only the path from peer, or nil before the path
	// exists. It stays valid until the module closes.
	PeerSource(peer framework.Incarnation) progress.Source
}

// Peeker is an optional ability of a PeerSource that returns the next frame in place, without
// delivery.
type Peeker interface {
	// Peek returns the next frame of the path, or nil after that many unsuccessful polls. A
	// poll is a load and a pause of some 25 ns; a module with a costlier poll, such as a
	// system call, polls proportionally less. The frame belongs to the module and is valid
	// until the next Drop or Poll. A Poll without Drop delivers it. Peek returns nil while
	// an event that needs Poll precedes the frame.
	Peek(polls int) []byte

	// Drop consumes the frame of the last Peek.
	Drop()
}

// Sharer is an optional ability of a Module that shares memory with several writers among the
// processes of a node. Its methods are called without the engine's lock.
type Sharer interface {
	// NewArea returns a zeroed area of size bytes for peers to open. It reserves the memory,
	// and fails if there is not enough.
	NewArea(size int) (*Area, error)

	// OpenArea opens an area of the peer by its number and size.
	OpenArea(peer framework.Peer, number uint32, size int) (*Area, error)

	// BellOf returns the bell of a peer. Call release after the last use.
	BellOf(peer framework.Peer) (bell progress.RemoteBell, release func(), err error)
}

// Area is shared memory of processes of one node. The contents that peers write are unvalidated.
// An area stays open until its Close, also after the close of the module.
type Area struct {
	// Identifies the area among those of its creator.
	Number uint32
	Bytes  []byte // Page-aligned.
	// Hide removes the file and the descriptor of an area that this process created, so that it
	// cannot be opened again. The last Close frees the memory.
	Hide func()
	// Close hides and unmaps the area. Bytes must not be accessed afterwards.
	Close func()
}
