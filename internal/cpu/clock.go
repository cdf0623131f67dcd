package cpu

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time of CLOCK_MONOTONIC, which all processes of a node
// share: what several of them have noted can be put in one order. It begins when
// the machine starts.
func Monotonic() time.Duration { return clock(unix.CLOCK_MONOTONIC) }

// Used returns how much processor time this process has used since it was made,
// in all its threads.
func Used() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// clock reads a clock. Both are part of every Linux, so that reading can't fail.
func clock(id int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t)
	return time.Duration(t.Nano())
}
