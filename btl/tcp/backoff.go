package tcp

import "time"

// backoff schedules the rounds of a dialer. It is pure.
type backoff struct {
	nextRoundAt         time.Duration
	pause               time.Duration
	consecutiveFailures int
	consecutiveFinals   int
}

const (
	minRedialPause = 10 * time.Millisecond
	maxRedialPause = time.Second

	// maxFinalRounds is the number of refused rounds that end an established connection. They take a third
	// of a second.
	maxFinalRounds = 6
)

// recordFailedRound schedules the next round. The time of the failed round counts as pause.
func (r *backoff) recordFailedRound(since, now time.Duration, isFinal bool) {
	r.pause = min(max(2*r.pause, minRedialPause), maxRedialPause)
	r.nextRoundAt = max(since+r.pause, now+minRedialPause)
	r.consecutiveFailures++
	if r.consecutiveFinals++; !isFinal {
		r.consecutiveFinals = 0
	}
}

// isExhausted reports whether further rounds are useless. A peer listens before it publishes its card.
func (r *backoff) isExhausted(wasConnected bool) bool {
	return r.consecutiveFinals >= maxFinalRounds || !wasConnected && r.consecutiveFinals > 0
}
