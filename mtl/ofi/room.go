package ofi

import (
	"math"

	"github.com/ferrympi/ferry/internal/libfabric"
)

// queueEntries is how many completions the queue has room for at least; a provider
// that says it takes more operations gets a longer one.
const queueEntries = 8192

// noLimit is a size that no queue has: a provider that claims more, most often the largest
// number that there is (psm3, opx), has no limit, and gets no queue of that length.
const noLimit = 1 << 24

// room is how much may be in progress at once.
type room struct {
	queue    int // completions that the queue is made for
	all      int // operations
	receives int // of which so many may be receives
}

// listeners returns how many receives of control messages a provider is given: they may
// share its room with those of messages.
func listeners(info *libfabric.Info, buffers int) int { return max(1, min(buffers, info.RxSize/4)) }

// roomOf returns what a provider has room for beside its listeners, in a version of the library.
func roomOf(info *libfabric.Info, buffers int, v libfabric.Version) room {
	r := room{queueEntries, math.MaxInt, max(info.RxSize-listeners(info, buffers)-min(reserved, info.RxSize/4), 1)}
	if info.TxSize < noLimit && info.RxSize < noLimit {
		r.queue = max(queueEntries, info.TxSize+info.RxSize)
		r.all = r.queue
	}
	if _, ok := needs(info.Provider, KeepTo, v); ok {
		r.receives = r.all / 2 // sends and probes need theirs
	}
	return r
}
