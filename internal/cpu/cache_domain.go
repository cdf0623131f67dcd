package cpu

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// CacheDomain returns the last-level cache that all processors in the affinity mask of a process'
// main thread share, identified by the lowest of its processors. ok is false if they have several
// such caches, or if that is unknown.
func CacheDomain(pid int) (lowest int, ok bool) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return 0, false
	}
	return cacheDomain(set, lastLevelSharers)
}

// cacheDomain is CacheDomain of an affinity mask. sharers returns the list of processors that share
// the last-level cache of a processor.
func cacheDomain(set unix.CPUSet, sharers func(cpu int) string) (lowest int, ok bool) {
	first := 0
	for first < len(set)*64 && !set.IsSet(first) {
		first++
	}
	lowest = -1
	inside := 0
	for low, high := range rangesOf(sharers(first)) {
		if lowest < 0 || low < lowest {
			lowest = low
		}
		for n := max(low, 0); n <= min(high, len(set)*64-1); n++ {
			if set.IsSet(n) {
				inside++
			}
		}
	}
	return lowest, inside > 0 && inside == set.Count()
}

// knownSharers has the results of lastLevelSharers, by processor.
var knownSharers sync.Map

// lastLevelSharers returns the list of processors that share the last-level cache of a processor. It
// is empty if the system has none.
func lastLevelSharers(cpu int) string {
	if list, ok := knownSharers.Load(cpu); ok {
		return list.(string)
	}
	list := readSharers(cpu)
	knownSharers.Store(cpu, list)
	return list
}

func readSharers(cpu int) string {
	for _, index := range []int{4, 3, 2} {
		if b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, index)); err == nil {
			return string(b)
		}
	}
	return ""
}
