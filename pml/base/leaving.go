package base

import (
	"math"
	"time"
)

// How a process goes.
//
// One that closes its last session leaves: it says goodbye, and how many messages it has
// sent here. Nothing is sent to it any more; what is on its way there is given a moment,
// since the goodbye may have overtaken the word that it was received. Messages of it go
// on to be received until all are accounted for: received, or taken aside. Some may lie
// where nobody has asked for them, so that they are searched for. When nothing is missing,
// or searching has been in vain for long enough, the process has departed. Where a
// transport keeps order and tells of the end of a path, a process departs at once.
//
// One that dies, or whose path breaks, has gone at once, whatever it had said.

// Presence is where a process is on its way out.
type Presence uint8

const (
	Present  Presence = iota
	Leaving           // nothing can be sent to it; what it has sent may still come
	Departed          // nothing comes of it any more: it has left in good order
	Broken            // nor of this one: the path to it has failed
	Died              // the bootstrap has said so
)

// Unknown is the number of messages that a process has sent of which nothing is known
// but that it has left.
const Unknown = math.MaxUint64

// What is on its way to a process that has left is given so many turns, at least
// FirstGap apart. Searches for its messages are FirstGap apart at first and LastGap at
// last.
const (
	graceTurns = 10
	FirstGap   = 2 * time.Millisecond
	LastGap    = 250 * time.Millisecond
)

// Farewell is a set of things that a PML does about a process that goes.
type Farewell uint8

const (
	// Shut: end what is to be sent to it, and is not on its way.
	Shut Farewell = 1 << iota
	// Forget: have the transport give up what is on its way to it.
	Forget
	// Seek: search for its messages, and call Sought when all places were searched.
	Seek
	// End: end what waits for it. It has departed.
	End
)

// Exit is how one process goes, as another one sees it: a pure state machine. Events go
// in by its methods, what is to be done comes out. No method allocates. The zero Exit is
// that of a process that is present.
type Exit struct {
	// Received and Aside are the messages of the process so far: received, and taken out
	// of the transport otherwise. The PML counts them.
	Received, Aside uint64

	total     uint64 // that it has sent, by its own word
	seen      uint64 // accounted for when the last search was over
	gap       time.Duration
	patience  int // searches in a row at LastGap that may be in vain
	vain      int // that were
	grace     int // turns until what is on its way is forgotten
	presence  Presence
	forgotten bool
}

// Presence returns where the process is.
func (x *Exit) Presence() Presence { return x.presence }

// Gone reports whether nothing comes of the process any more.
func (x *Exit) Gone() bool { return x.presence > Leaving }

// Failed reports whether it is gone without having left in good order.
func (x *Exit) Failed() bool { return x.presence > Departed }

// Goodbye says that the process has left, and how many messages it has sent here, or
// Unknown. A number may come after it was known that the process has left. patience is
// how many searches in a row, LastGap apart, may find nothing. The first goodbye is Shut;
// Turn is to be called from then on. Others are nothing.
func (x *Exit) Goodbye(total uint64, patience int) Farewell {
	switch x.presence {
	case Present:
		x.presence, x.total, x.patience = Leaving, total, patience
		x.gap, x.grace = FirstGap, graceTurns
		return Shut
	case Leaving:
		x.total = min(x.total, total)
	}
	return 0
}

// Gap is how long after the last turn the next one is due.
func (x *Exit) Gap() time.Duration { return x.gap }

// Turn says that Gap has passed, or that a search for messages can go on. The result has
// Forget once, and Seek or End; or it is nothing.
func (x *Exit) Turn() (f Farewell) {
	if x.presence != Leaving {
		return 0
	}
	if x.grace > 0 {
		if x.grace--; x.grace > 0 {
			return 0
		}
	}
	if x.ForgetOnce() {
		f = Forget
	}
	if x.Received+x.Aside >= x.total || x.vain >= x.patience {
		return f | End
	}
	return f | Seek
}

// Sought says that a search for the process's messages is over.
func (x *Exit) Sought() {
	switch found := x.Received + x.Aside; {
	case found > x.seen:
		x.seen, x.vain, x.gap = found, 0, FirstGap
	case x.gap < LastGap:
		x.gap = min(2*x.gap, LastGap)
	default:
		x.vain++
	}
}

// Go says that nothing comes of the process any more, and why. It reports whether that
// is news: the death of a process is also where only its path was known to be broken.
func (x *Exit) Go(why Presence) bool {
	if x.Gone() && !(x.presence == Broken && why == Died) {
		return false
	}
	x.presence = why
	return true
}

// ForgetOnce reports whether the transport is to forget the process: the first time.
func (x *Exit) ForgetOnce() bool {
	first := !x.forgotten
	x.forgotten = true
	return first
}
