package cpu

import (
	"iter"
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
	return max(1, countList(string(b)))
}

// countList counts the elements of a list such as "0-3,7" and skips invalid elements.
func countList(list string) int {
	n := 0
	for low, high := range rangesOf(list) {
		n += high - low + 1
	}
	return n
}

// rangesOf returns the ranges of a list such as "0-3,7", and skips invalid elements.
func rangesOf(list string) iter.Seq2[int, int] {
	return func(yield func(low, high int) bool) {
		for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
			low, high, isRange := strings.Cut(part, "-")
			if !isRange {
				high = low
			}
			a, errA := strconv.Atoi(low)
			b, errB := strconv.Atoi(high)
			if errA == nil && errB == nil && a <= b && !yield(a, b) {
				return
			}
		}
	}
}
