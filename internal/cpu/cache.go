package cpu

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// CoreCache returns the size of the second-level cache of a core in bytes, or 0 if it is
// unknown.
func CoreCache() int { return coreCache() }

var coreCache = sync.OnceValue(func() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index2/size")
	if err != nil {
		return 0
	}
	return parseCacheSize(string(b))
})

// parseCacheSize parses a size in the format of Linux ("1024K"). It returns 0 for other text.
func parseCacheSize(s string) int {
	number, ok := strings.CutSuffix(strings.TrimSpace(s), "K")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n << 10
}
