package pml

import "errors"

// Watchable is an ability of a Comm (ask through framework.As) whose PML knows each
// message when it arrives (Caps.Arrivals): another PML matches the messages of a plane, because some of
// their receives may be matched elsewhere. All calls, in both directions, come with the
// engine's lock held.
type Watchable interface {
	// Watch gives a watcher the messages of a plane that match no posted receive: those
	// that wait, before it returns, and all that come. Receives that are posted already
	// stay, and get what they match first. Those that are posted later fail with
	// ErrWatched, and so do probes, blocked ones included. If CannotCome has an answer for
	// some rank already, Watch calls Changed.
	//
	// Close does not end that, and neither drops messages nor frees the communicator until
	// Watch is called with nil. It is not called with nil otherwise.
	Watch(plane Plane, w Watcher)

	// CannotCome returns why no message comes from a rank any more: it has failed, or
	// left, or the plane was aborted. nil: one may come.
	CannotCome(src int, plane Plane) error
}

// A Watcher takes the messages of a plane.
type Watcher interface {
	// Eager passes a message whose payload has come with it, in the order of arrival. If a
	// receive of the watcher matches, Eager copies the payload into that receive's buffer and
	// returns true. Otherwise it returns false, and Arrived hands over the same message next.
	// payload is valid during the call.
	Eager(src, tag int, payload []byte) bool
	// Arrived hands over a message, in the order of arrival. The transfer of its payload starts
	// with k.Start, possibly within Arrived. The result is nil if k was started or dropped.
	Arrived(k Claimed, st Status) Unmatched
	// Changed reports that CannotCome may have another answer for some rank.
	Changed()
}

// Unmatched is a message that was handed over and waits in a watcher's queue, until it is
// started or dropped.
type Unmatched interface {
	// Return takes the message out of the queue for its sender, which withdraws it, and
	// reports true. If the message has matched it does nothing and reports false.
	Return() bool
}

// NextReceiver is an optional ability of a Watchable: it receives a message that is about to come
// without its watcher.
type NextReceiver interface {
	// ReceiveNext polls for some microseconds for the next message of a rank. If that is an
	// eager message of the plane with the tag, or any with AnyTag, ReceiveNext copies the
	// payload into buf, as far as it fits, and returns the tag and the length. Otherwise the
	// message stays, and ok is false. No receive of the watcher matches the message, and no message of that
	// rank is in the watcher's queue. The engine's lock is held, all the time.
	ReceiveNext(buf []byte, src, tag int, plane Plane) (came, bytes int, ok bool)
}

// ErrWatched is the error of receives and probes on a plane that is watched.
var ErrWatched = errors.New("another PML matches the messages of this plane")
