// Package cpu provides processor and scheduler primitives for waiting and for shared memory.
package cpu

import (
	"golang.org/x/sys/unix"
)

// Pause yields execution units to the sibling thread of the core, for 10 to 40 ns. Spin loops
// call it between polls of a line that another core writes, since frequent polls take the line
// away from the writer.
func Pause()

// Available returns the number of processors in the affinity mask of this process, at least 1.
func Available() int { return availableTo(0) }

// availableTo is Available of another process, or 1 if that process is not visible here.
func availableTo(pid int) int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return 1
	}
	return max(1, set.Count())
}

// Yield is sched_yield(2).
func Yield() {
	// A raw call keeps the P, since sched_yield does not sleep.
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
