package base

import "time"

// A transport finds out that a process is gone, or rather that a path is broken or can't
// be opened, sooner than the bootstrap tells why: it died, it left, it has given this one
// up. What the transport has failed waits for the bootstrap's word in steps of DoubtStep:
// a process that is stopped meanwhile loses a few of them. The bootstrap of a node takes
// milliseconds, that of a large job a part of a second.
const (
	DoubtStep  = 10 * time.Millisecond
	DoubtSteps = 80

	doubtAtOnce = 4
)

// DoubtTaken returns how many steps are over since the last one was taken; 0: the next one is
// not. A busy machine polls late, and a process that was stopped loses a few.
func DoubtTaken(last, now time.Time) int { return min(int(now.Sub(last)/DoubtStep), doubtAtOnce) }
