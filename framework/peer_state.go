package framework

import "fmt"

// PeerState is the condition of an incarnation of a process, as one other process observes it. All layers have this one
// vocabulary. A peer changes from Alive by way of Leaving to Left, or to Unreachable or Failed. An unreachable peer may be
// reported as failed later, or be Alive again after a reconnect. Left and Failed are final.
//
// The end of a path does not change the state, because other paths may lead to the peer.
type PeerState uint8

const (
	// Alive peers exchange messages with this process, or may do so.
	Alive PeerState = iota
	// Leaving peers have closed their last session and accept no messages. Some of their own may still come. This
	// state occurs in PMLs only, and no event has it.
	Leaving
	// Left peers have closed their last session. In an event of the bootstrap or of a BTL, some of their messages may still
	// come. In a PML, none is outstanding.
	Left
	// Unreachable peers exchange no messages with this process, and are not known to have left or failed. Their path has
	// failed, they have disconnected this process, or this process is isolated.
	Unreachable
	// Failed peers were reported as failed by the bootstrap. They may be alive, but all others act as if they were not.
	Failed
)

var peerStateNames = [...]string{"Alive", "Leaving", "Left", "Unreachable", "Failed"}

func (s PeerState) String() string {
	if int(s) >= len(peerStateNames) {
		return fmt.Sprintf("PeerState(%d)", uint8(s))
	}
	return peerStateNames[s]
}

// HasEnded reports whether no more messages of such a peer come.
func (s PeerState) HasEnded() bool { return s > Leaving }

// PeerEvent reports that a peer has changed to a state with HasEnded. The assembly produces
// it from reports of the bootstrap, for each incarnation that they concern. BTLs produce it when they detect the end of a
// session. The consumers are the PMLs and package mpi.
type PeerEvent struct {
	Peer  Incarnation
	State PeerState
	// Err is the reason, never nil. It is a *PeerFailure for Failed, wraps ErrPeerClosed for Left, and wraps
	// ErrPeerDisconnected for Unreachable if the peer has disconnected this process.
	Err error
}

// FailedEvent returns the event of a failed peer. The reason is that of the bootstrap, such as "signal: killed".
func FailedEvent(peer Incarnation, reason string) PeerEvent {
	return PeerEvent{peer, Failed, &PeerFailure{reason}}
}

// LeftEvent returns the event of a peer that has closed its last session.
func LeftEvent(peer Incarnation) PeerEvent { return PeerEvent{peer, Left, ErrPeerClosed} }

// UnreachableEvent returns the event of a peer that is unreachable for the reason err.
func UnreachableEvent(peer Incarnation, err error) PeerEvent {
	return PeerEvent{peer, Unreachable, err}
}

// PeerFailure is the error of a peer that the bootstrap has reported as failed. It matches ErrProcFailed. Package mpi returns a
// ProcFailedError in its place, which has ranks.
type PeerFailure struct{ Reason string }

func (e *PeerFailure) Error() string { return "process failed: " + e.Reason }

// Is reports whether target is ErrProcFailed.
func (e *PeerFailure) Is(target error) bool { return target == ErrProcFailed }
