// Package btl is the contract of byte transfer layers: modules that move
// frames between processes. A frame is a header of the protocol above and its
// payload, opaque to the module. PML ob1 runs over any set of modules.
//
// # Calling rules
//
// Every method of a Module and of an Endpoint, except where it says otherwise,
// is called with the progress engine's lock held: a module needs no lock of its
// own for its send and receive paths. None of them blocks.
//
// # Buffers
//
// What Reserve returns belongs to the protocol until Commit. What a module
// hands up through Inbound.Frame belongs to the module again when Frame
// returns; its bytes may be changed by a malicious peer at any time, so that a
// protocol reads each byte it decides on once.
package btl

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Component is what a BTL registers.
type Component interface {
	framework.Component
	// Open makes the module of this process. It may reserve memory and
	// descriptors, and contacts no peer. Called without the engine's lock.
	Open(ctx context.Context, env Env) (Module, error)
}

// Env is what a module is opened with.
type Env struct {
	progress.Env     // the assembly, not the module, adds the module to its Engine
	Params       any // what Component.Params returned, filled
	Upcall       Receiver
}

// Ended tells the protocol that a path to or from peer has ended: PeerGone if err wraps
// framework.ErrPeerClosed, else PathDown, with a TransportError of component ("btl
// shm"), op ("send", "receive") and err. Called from Poll, with the lock held.
func (e *Env) Ended(component string, peer framework.Life, op string, err error) {
	failure := &framework.TransportError{Component: component, Peer: e.Worlds.Proc(peer.ID).String(), Op: op, Err: err}
	if errors.Is(err, framework.ErrPeerClosed) {
		e.Upcall.PeerGone(peer, failure)
	} else {
		e.Upcall.PathDown(peer, failure)
	}
}

// Receiver is what a module calls upwards. All calls come from the module's
// Poll, with the engine's lock held. The protocol may call the module from within,
// and close or open paths there.
type Receiver interface {
	// Accept says that peer has opened a path to this process. It returns where
	// the frames of this path go; the module keeps it.
	Accept(peer framework.Life) Inbound
	// Limits says that frames to peer may only be so large from now on, counted as
	// in Caps: its side of the path turned out smaller. It comes before the first
	// reservation on that path succeeds.
	Limits(peer framework.Life, eager, frame int)
	// PathDown says that a path to or from peer carries nothing more: damaged
	// contents, a broken connection, a refusal. Nothing is said about the process. err
	// is a *framework.TransportError. One that wraps ErrNeverOpened speaks of the path
	// to peer, over which no frame went and none will.
	PathDown(peer framework.Life, err error)
	// PeerGone says that peer has closed its session in good order: nothing more is
	// sent to it, and all that it has sent has been handed up. err is a
	// *framework.TransportError that wraps framework.ErrPeerClosed. Whoever has a path
	// to peer that is full, or not open yet, is told; a module that knows earlier says so.
	PeerGone(peer framework.Life, err error)
}

// ErrNeverOpened is wrapped by the error of a path that Connect has begun and on which
// no Reserve has succeeded: what waits for it can go another way.
var ErrNeverOpened = errors.New("the path never opened")

// Inbound takes the frames of one path from one peer, in the order in which
// they were committed there.
type Inbound interface {
	// Frame is called once per frame; frame is valid until it returns. An error
	// means that the frame's contents make no sense: the module closes the path,
	// hands up nothing more of it, and calls PathDown with that error. The sender is
	// told, too.
	Frame(frame []byte) error
}

// Caps says what a module can do. Fixed once the module is open.
type Caps struct {
	EagerLimit  int     // a frame up to this many bytes is cheap at any time
	FrameLimit  int     // no frame is larger; at least MinFrameLimit
	Exclusivity int     // of the modules that reach a peer the one of the highest value is used,
	LatencyNS   float64 // and among equals the one of the lowest: one way, small frame; the order of magnitude is enough
	Device      string  // what carries the frames, for explain: "/dev/shm", "eth0"
	Ring        int     // bytes of memory that the frames of a path go through by turns (WideReserver); 0: there is none
	ReadFrom    int     // messages of this size and more are read out of memory from Allocate (RemoteReader); 0: none are
}

// MinFrameLimit is the smallest FrameLimit that a module may have: the largest
// header of a protocol and some payload.
const MinFrameLimit = 256

// NotMeant is the error of a module that is not for such a peer, as one between
// processes is not for a process itself. It explains nothing, and is left out where
// other modules have reasons.
type NotMeant string

func (e NotMeant) Error() string { return string(e) }

// A Module moves frames for this process. It is a progress.Source: Poll hands
// received frames up and returns how many events there were. It may also say
// how it is awaited (progress.Bell, progress.Descriptor, progress.Polled).
type Module interface {
	progress.Source

	Caps() Caps

	// Blob returns the module's entry for the business card: what a peer's
	// module needs to Connect. It is fixed once the module is open, but for a module whose
	// transport may end and be started again: nil while there is none, and another one
	// then, which communicators made afterwards use. May be called without the lock.
	Blob() []byte

	// Reach reports why the module does not reach peer, in words for `ferry
	// explain`, or nil if Connect would be likely to succeed; NotMeant, if it is not for
	// such peers whatever the machine. It keeps nothing.
	Reach(peer framework.Peer) error

	// Connect opens a path to peer. It doesn't wait: the endpoint may answer
	// "would block" until the peer has answered. An error is like
	// Reach's; nothing is kept then.
	Connect(peer framework.Peer) (Endpoint, error)

	// Close ends all paths and frees all. Frames that were committed before are
	// delivered as far as the peer reads them. Called without the engine's lock,
	// after the engine has stopped polling the module.
	Close() error
}

// An Endpoint is one path for frames to one peer. Frames arrive whole, in
// order, at most once.
type Endpoint interface {
	// Reserve returns n bytes (1 <= n <= FrameLimit) in which the caller builds
	// one frame in place, or nil: it would block, try again after progress.
	// Reserving twice without Commit drops the first reservation. What the bytes
	// hold at first is undefined.
	Reserve(n int) []byte

	// Commit sends the first n bytes of the last reservation (1 <= n <= its size).
	// After it the bytes are the module's.
	Commit(n int)

	// Idle reports whether nothing is left here that only this process can bring
	// on its way: a session that closes waits for it.
	Idle() bool

	// Close gives the path up. What was committed still arrives. Closing again,
	// or after PathDown or PeerGone, does nothing.
	Close()
}
