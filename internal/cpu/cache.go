package cpu

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// CoreCache returns the size of the largest cache that a core has for itself, or with its
// second thread, in bytes: the second level. 0: the system does not say.
func CoreCache() int { return coreCache() }

var coreCache = sync.OnceValue(func() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index2/size")
	if err != nil {
		return 0
	}
	return parseCacheSize(string(b))
})

// parseCacheSize reads a size as Linux shows it: "1024K". 0: it is none.
func parseCacheSize(s string) int {
	number, ok := strings.CutSuffix(strings.TrimSpace(s), "K")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n << 10
}
