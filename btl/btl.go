// Package btl defines the contract of byte transfer layers, modules that move frames between
// processes. A frame is a header of the protocol above and its payload, opaque to the module.
// PML ob1 runs over any set of modules.
//
// # Calling rules
//
// Unless documented otherwise, all methods of a Module and of an Endpoint are called with the
// lock of the progress engine held, so that a module needs no lock for its send and receive
// paths. No method blocks.
//
// # Buffers
//
// The protocol owns a reservation until Commit. A frame passed to Inbound.Frame belongs to the
// module again when Frame returns. A malicious peer may change its bytes at any time; a protocol
// reads each byte that it validates once.
package btl

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Component is a registered BTL.
type Component interface {
	framework.Component
	// Open returns the module of this process. It may reserve memory and descriptors, and
	// contacts no peer. It is called without the engine's lock.
	Open(ctx context.Context, env Env) (Module, error)
}

// Env is the environment of a module. The assembly adds the module to the Engine.
type Env struct {
	progress.Env
	// Result of Component.Params, with the values set.
	Params any
	Upcall Receiver
}

// Ended reports the end of a path to or from peer to the protocol. It calls PeerChanged with
// framework.Left if err wraps framework.ErrPeerClosed and PathDown otherwise, with a TransportError
// of component ("btl shm"), op ("send", "receive") and err. Call it from Poll, with the lock held.
func (e *Env) Ended(component string, peer framework.Incarnation, op string, err error) {
	failure := &framework.TransportError{Component: component, Peer: e.Worlds.Proc(peer.ID).String(), Op: op, Err: err}
	if errors.Is(err, framework.ErrPeerClosed) {
		e.Upcall.PeerChanged(framework.PeerEvent{Peer: peer, State: framework.Left, Err: failure})
	} else {
		e.Upcall.PathDown(peer, failure)
	}
}

// Receiver handles the events of a module. All calls come from Poll of the module, with the
// engine's lock held. The protocol may call the module during a call, and open or close paths.
type Receiver interface {
	// Accept handles a path that peer opened to this process. It returns the receiver of
	// its frames, which the module retains.
	Accept(peer framework.Incarnation) Inbound
	// LinkChanged reports a connection to peer below its path that opened or closed, as text
	// for users.
	LinkChanged(peer framework.Incarnation, note string)
	// Card returns the argument for Connect to a peer that may have no path. It reports false
	// before the arrival of the card, or if the card has no entry of the module.
	Card(peer framework.Incarnation) (framework.Peer, bool)
	// Limits lowers the frame limits of the path to peer, after its side turned out smaller.
	// The limits count as in Caps. The call precedes the first successful reservation.
	Limits(peer framework.Incarnation, eager, frame int)
	// PathDown reports the end of a path to or from peer, after damaged contents, a failed
	// connection or a refusal. The process of the peer may be alive. err is a
	// *framework.TransportError. With ErrNeverOpened it is about the path to peer, which
	// has carried no frame and carries none later.
	PathDown(peer framework.Incarnation, err error)
	// PeerChanged reports that a peer has closed its session, always with framework.Left. All
	// its frames have been delivered, and no frame is sent to it. Err is a
	// *framework.TransportError that wraps framework.ErrPeerClosed. The event is mandatory if a
	// path to the peer is full or not yet open; a module may report it earlier.
	PeerChanged(ev framework.PeerEvent)
}

// ErrNeverOpened is wrapped by the error of a path that ended after Connect and before the first
// successful Reserve. Pending frames may use another path.
var ErrNeverOpened = errors.New("the path never opened")

// Inbound receives the frames of one path in the order of their Commit.
type Inbound interface {
	// Frame handles one frame, which is valid until it returns. After an error, for
	// invalid contents, the module closes the path, delivers no further frame of it and
	// calls PathDown with the error. The module notifies the sender.
	Frame(frame []byte) error

	// Place returns the buffer of size bytes for the payload of a frame from Gather. header
	// is the unvalidated header of the peer, valid until Place returns. After nil the module
	// delivers the frame through Frame. A module need not call Place.
	//
	// The module owns the buffer until its Poll returns. To continue an incomplete payload it
	// calls Place again in a later Poll, with the same header and size. A nil buffer then
	// cancels the payload; the module drops the frame and continues with the next one.
	Place(header []byte, size int) []byte

	// Placed reports a complete payload, in the Poll of the last Place. Its error is that
	// of Frame.
	Placed(header []byte, size int) error
}

// Caps are the capabilities of a module, constant once it is open.
type Caps struct {
	// EagerLimit is the size up to which a frame is always cheap, in bytes.
	EagerLimit int
	// FrameLimit is the size of the largest frame in bytes, at least MinFrameLimit.
	FrameLimit int
	// Exclusivity is the preference among modules that reach the same peer; the highest
	// wins.
	Exclusivity int
	// LatencyNS is the one-way latency of a small frame, approximately. The lowest wins among
	// modules of equal Exclusivity.
	LatencyNS float64
	// Device is the name of the device for explain ("/dev/shm", "eth0").
	Device string
	// Ring is the size of the ring of a path in bytes (FullRing), or 0 without a ring.
	Ring int
	// ReadFrom is the smallest message that is read directly out of memory from Allocate
	// (RMA), in bytes, or 0 for no message.
	ReadFrom int
}

// MinFrameLimit is the smallest FrameLimit of a module. It holds the largest header of a
// protocol and some payload.
const MinFrameLimit = 256

// NotMeant is the error of a module that does not serve such a peer by design, as a module
// between processes does not serve the process itself. Explanations omit it if other modules
// return reasons.
type NotMeant string

func (e NotMeant) Error() string { return string(e) }

// Module moves frames for this process. Its Poll delivers received frames and returns the number
// of events. A module may implement a way to wait for events (progress.Bell,
// progress.Descriptor, progress.Polled).
type Module interface {
	progress.Source

	Caps() Caps

	// Blob returns the module's entry in the business card, the input of Connect on a peer.
	// It is constant once the module is open, unless the transport may restart. It is then
	// nil without a transport, and the next value applies to communicators made later. It may
	// be called without the lock.
	Blob() []byte

	// Reach returns nil if Connect is likely to succeed, or the reason against it for
	// `ferry explain`. The reason is NotMeant if the module does not serve such peers on
	// any machine. Reach retains no state.
	Reach(peer framework.Peer) error

	// Connect opens a path to peer without blocking. Reserve of the endpoint may return nil
	// until the reply of the peer. After an error, as of Reach, no state remains.
	Connect(peer framework.Peer) (Endpoint, error)

	// Close ends all paths and frees all resources. Committed frames are delivered as far as
	// the peer reads them. It is called without the engine's lock, after the last Poll.
	Close() error
}

// Placement selects the part of a path's ring for a frame.
type Placement uint8

const (
	// RingStart places large frames into the start of the ring while the peer keeps up, in the
	// caches of both cores. That is fast for a low core-to-core latency.
	RingStart Placement = iota
	// FullRing places frames into the whole ring, in lines that have left both caches since
	// their last use.
	FullRing
)

// Endpoint is one path for frames to one peer. Frames arrive complete, in order, at most once.
type Endpoint interface {
	// Reserve returns n bytes (1 <= n <= FrameLimit) of undefined contents for one frame. It
	// returns nil if it would block; retry after progress. A second call without Commit
	// drops the first reservation. Endpoints without a ring ignore the placement.
	Reserve(n int, placement Placement) []byte

	// Commit sends the first n bytes of the last reservation (1 <= n <= its size), which
	// then belong to the module.
	Commit(n int)

	// Idle reports whether no frame is left that needs this process to leave. The close of
	// a session waits for it.
	Idle() bool

	// Close closes the path. Committed frames still arrive. A second Close, or a Close
	// after PathDown or PeerChanged, is a no-op.
	Close()
}
