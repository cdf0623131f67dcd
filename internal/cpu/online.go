package cpu

import (
	"os"
	"strconv"
	"strings"
)

// ForRanks returns the number of processors shared by the ranks of this node. A rank with fewer
// processors than its launcher is probably bound to them alone, so that the number of the
// launcher counts. For a rank with a single processor the number of the machine counts.
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

// online returns the number of online processors of the machine, at least 1.
func online() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return 1
	}
	return max(1, countList(strings.TrimSpace(string(b))))
}

// countList counts the elements of a list such as "0-3,7" and skips invalid elements.
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
