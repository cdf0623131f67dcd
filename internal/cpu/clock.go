package cpu

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time of CLOCK_MONOTONIC since the start of the machine. All processes
// of a node share the clock, so that their times are comparable.
func Monotonic() time.Duration { return clock(unix.CLOCK_MONOTONIC) }

// Used returns the processor time of all threads of this process since its start.
func Used() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// clock reads a clock that every Linux has, so that errors are ignored.
func clock(id int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t)
	return time.Duration(t.Nano())
}
