package pml

import "errors"

// Watchable is an optional interface of a Comm (framework.As) whose PML knows each message when it arrives
// (Caps.Arrivals). Another PML then matches the messages of a plane, because some of their receives may match messages of
// that PML. The engine's lock is held in all calls, in both directions.
type Watchable interface {
	// Watch passes the unmatched messages of a plane to a watcher, before it returns those that have arrived, and later
	// all that arrive. Receives that are posted already stay, and match first. Later receives fail with ErrWatched, and so
	// do probes, including blocked ones. If SourceError returns an error for some rank already, Watch calls Changed.
	//
	// Close does not end the watch. The communicator drops no messages and is not freed until the watcher is removed by
	// Watch with nil, which is called only then.
	Watch(plane Plane, w Watcher)

	// SourceError returns the reason why no message can come from a rank, because it has failed or left, or the plane
	// was aborted. Otherwise it returns nil.
	SourceError(src int, plane Plane) error
}

// A Watcher matches the messages of a plane.
type Watcher interface {
	// Eager passes a message that has arrived with its payload, in order of arrival. If a receive of the watcher matches,
	// Eager copies the payload into that receive's buffer and returns true. Otherwise it returns false, and Arrived
	// passes the same message next. payload is valid during the call.
	Eager(src, tag int, payload []byte) bool
	// Arrived passes a message, in order of arrival. The transfer of its payload starts with k.Start, possibly within
	// Arrived. The result is nil if k was started or dropped.
	Arrived(k Claimed, st Status) Unmatched
	// Changed reports that the result of SourceError may have changed for some rank.
	Changed()
}

// Unmatched is a message in a watcher's queue, until it is started or dropped.
type Unmatched interface {
	// Return removes the message from the queue for its sender, which withdraws it, and returns true. If the message has
	// matched, it returns false.
	Return() bool
}

// NextReceiver is an optional interface of a Watchable. It receives the next message without its watcher.
type NextReceiver interface {
	// ReceiveNext polls for some microseconds for the next message of a rank. If that is an eager message of the plane
	// with the tag, or any with AnyTag, ReceiveNext copies the payload into buf, as much as fits, and returns the tag and
	// the length. Otherwise the message stays, and ok is false. The caller ensures that no receive of the watcher matches
	// the message, and that no message of the rank is in the watcher's queue. The engine's lock is held throughout.
	ReceiveNext(buf []byte, src, tag int, plane Plane) (gotTag, bytes int, ok bool)
}

// ErrWatched is the error of receives and probes on a plane that is watched.
var ErrWatched = errors.New("another PML matches the messages of this plane")
