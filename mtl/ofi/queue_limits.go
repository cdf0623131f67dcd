package ofi

import (
	"math"

	"github.com/ferrympi/ferry/internal/libfabric"
)

// minQueueEntries is the smallest length of a completion queue. A provider with more operations gets a
// longer one.
const minQueueEntries = 8192

// unlimitedSize is the smallest size that means "no limit". psm3 and opx report the largest number
// that there is, which must not become the length of a queue.
const unlimitedSize = 1 << 24

// queueLimits are limits of the operations in progress.
type queueLimits struct {
	maxCompletions int
	maxOperations  int
	// Receives of messages, which count as operations too.
	maxReceives int
}

// controlReceiveCount returns the number of control receives. They share the provider's receive queue with
// the receives of messages, and take at most a quarter of it.
func controlReceiveCount(info *libfabric.Info, buffers int) int {
	return max(1, min(buffers, info.RxSize/4))
}

// limitsFor returns the limits of a provider in a version of libfabric.
func limitsFor(info *libfabric.Info, buffers int, v libfabric.Version) queueLimits {
	l := queueLimits{
		maxCompletions: minQueueEntries,
		maxOperations:  math.MaxInt,
		maxReceives:    max(info.RxSize-controlReceiveCount(info, buffers)-min(reservedReceives, info.RxSize/4), 1),
	}
	if info.TxSize < unlimitedSize && info.RxSize < unlimitedSize {
		l.maxCompletions = max(minQueueEntries, info.TxSize+info.RxSize)
		l.maxOperations = l.maxCompletions
	}
	if _, ok := quirkReason(info.Provider, LimitReceives, v); ok {
		l.maxReceives = l.maxOperations / 2 // The rest is for sends and probes.
	}
	return l
}
