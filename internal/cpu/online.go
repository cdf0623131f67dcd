package cpu

import (
	"os"
	"strconv"
	"strings"
)

// ForRanks returns how many processors the ranks of this node share. If a launcher has bound this rank to
// fewer processors than it may use itself, those are most likely for this rank alone, so that the launcher's
// number counts. The machine's number counts for a rank with a single one.
func ForRanks() int { return forRanks(Available(), availableTo(os.Getppid()), online) }

func forRanks(own, parents int, online func() int) int {
	switch {
	case parents > own:
		return parents
	case own > 1:
		return own
	}
	return online()
}

// online returns the number of processors of the machine that are in use,
// whatever this process's affinity; at least 1.
func online() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return 1
	}
	return max(1, countList(strings.TrimSpace(string(b))))
}

// countList counts the elements of a list such as "0-3,7". What can't be read
// counts as nothing.
func countList(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, errA := strconv.Atoi(low)
		b, errB := strconv.Atoi(high)
		if errA == nil && errB == nil && a <= b {
			n += b - a + 1
		}
	}
	return n
}
