// Package cpu has the few processor and scheduler facts that waiting needs.
package cpu

import (
	"golang.org/x/sys/unix"
)

// Pause tells the processor that this is a spin loop: a sibling thread of the
// same core gets its units. It takes some 10 to 40 ns. It also belongs between two looks at a line that
// another core is about to write: more frequent looks take the line away from the writer.
func Pause()

// Available returns the number of processors that this process may run on, from
// its affinity mask; at least 1.
func Available() int { return availableTo(0) }

// availableTo is Available of another process. It is 1 if that process is not visible here.
func availableTo(pid int) int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return 1
	}
	return max(1, set.Count())
}

// Yield offers the processor to other processes (sched_yield).
func Yield() {
	// Without entersyscall: the call never sleeps, and the P stays ours.
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
