// Package cpu has the few processor and scheduler facts that waiting needs.
package cpu

import (
	"golang.org/x/sys/unix"
)

// Pause tells the processor that this is a spin loop: a sibling thread of the
// same core gets its units. It takes some 10 to 40 ns.
func Pause()

// BetweenLooks comes between two looks at a line that another core is about to write. Loads that
// run ahead are thrown away when the line goes, and that costs more than a look: so the next one
// begins when the last is over. On amd64 that is two LFENCEs, a third of a Pause or less, and
// a message is seen earlier; on other processors it is a Pause.
func BetweenLooks()

// Available returns the number of processors that this process may run on, from
// its affinity mask; at least 1.
func Available() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 1
	}
	return max(1, set.Count())
}

// Yield offers the processor to other processes (sched_yield).
func Yield() {
	// Without entersyscall: the call never sleeps, and the P stays ours.
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
