package base

import "time"

// A transport may detect the end of a process, as a broken path or one that cannot be opened, before the
// bootstrap reports the reason. An operation that the transport has failed waits for this report, in steps of
// DoubtStep. A process that was stopped in the meantime consumes at most maxStepsAtOnce of them. The bootstrap of
// a node takes milliseconds, and that of a large job a fraction of a second.
const (
	DoubtStep  = 10 * time.Millisecond
	DoubtSteps = 80

	maxStepsAtOnce = 4
)

// DoubtStepsElapsed returns the number of steps elapsed since the last one, at most maxStepsAtOnce, so that late polls
// on a busy machine do not consume all of them.
func DoubtStepsElapsed(last, now time.Time) int {
	return min(int(now.Sub(last)/DoubtStep), maxStepsAtOnce)
}
