package cpu

import (
	"os"
	"strconv"
	"strings"
)

// ForRanks returns how many processors the ranks of this node share. A rank that
// is bound to a single one was most likely given it for itself, so that the
// machine's number counts then.
func ForRanks() int {
	if n := Available(); n > 1 {
		return n
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
