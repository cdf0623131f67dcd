package tcp

import "time"

// backoff schedules the rounds of a dialer. It is pure.
type backoff struct {
	nextRoundAt         time.Duration
	roundPause          time.Duration
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
func (b *backoff) recordFailedRound(since, now time.Duration, isFinal bool) {
	b.roundPause = min(max(2*b.roundPause, minRedialPause), maxRedialPause)
	b.nextRoundAt = max(since+b.roundPause, now+minRedialPause)
	b.consecutiveFailures++
	if b.consecutiveFinals++; !isFinal {
		b.consecutiveFinals = 0
	}
}

// isExhausted reports whether further rounds are useless. A peer listens before it publishes its card.
func (b *backoff) isExhausted(wasConnected bool) bool {
	return b.consecutiveFinals >= maxFinalRounds || !wasConnected && b.consecutiveFinals > 0
}
