package base

import "time"

// A transport finds out that a process is gone, or rather that a path is broken or can't
// be opened, sooner than the bootstrap tells why: it died, it left, it has given this one
// up. What the transport has failed waits for the bootstrap's word in steps of DoubtStep:
// a process that is stopped meanwhile loses one of them. The bootstrap of a node takes
// milliseconds, that of a large job a part of a second.
const (
	DoubtStep  = 10 * time.Millisecond
	DoubtSteps = 80
)
