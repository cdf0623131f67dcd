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
	// ErrWatched, and so do probes, blocked ones included.
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
	// Arrived hands over a message, in the order of arrival.
	Arrived(k Claimed, st Status)
	// Changed says that CannotCome may have another answer for some rank.
	Changed()
}

// ErrWatched is what receives and probes get on a plane that somebody watches.
var ErrWatched = errors.New("another PML matches the messages of this plane")
