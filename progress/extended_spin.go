package progress

// If waits are oversubscribed only because processes have several streams, the peer of a wait often runs on another processor, and
// answers in less time than a switch to another thread and back takes. A wait that spins for that time keeps both threads
// running until their time slices end. If the peer needs the processor of the wait, spinning delays it. Therefore waits spin
// longer until that has failed several times in succession, and then once in a while.

const (
	// extendedPolls is the number of further polls before the first yield. They take 4 us. A switch to another thread and back takes 2 us.
	extendedPolls = 128
	// failuresToStop is the number of consecutive failures that end extended spinning.
	failuresToStop = 8
	// trialPeriod is the number of waits per trial after that.
	trialPeriod = 16
)

// extendedSpin is the history of an engine's waits that were about to yield. Guarded by the engine's lock.
type extendedSpin struct {
	// Failures until extended spinning ends.
	remainingFailures int
	// Waits since the last extension.
	skippedWaits int
	// yieldCount at the last extension. A wait that ends without a yield is a success.
	yieldsAtExtension uint32
}

// extendSpin returns the number of further polls of a wait that is about to yield for the first time. Lock held.
//
//go:noinline
func (e *Engine) extendSpin() int {
	if e.nodeProcs.Load() > e.yieldAbove { // The waits of the node yield even without streams.
		return 0
	}
	s := &e.extendedSpin
	if e.yieldCount == s.yieldsAtExtension {
		s.remainingFailures = failuresToStop
	} else if s.remainingFailures > 0 {
		s.remainingFailures--
	}
	if s.skippedWaits++; s.remainingFailures == 0 && s.skippedWaits < trialPeriod {
		return 0
	}
	s.skippedWaits, s.yieldsAtExtension = 0, e.yieldCount
	return extendedPolls
}
