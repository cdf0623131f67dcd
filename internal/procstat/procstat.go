// Package procstat measures the resources of this process, for tests of growth.
package procstat

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// Usage holds sizes in bytes and counts.
type Usage struct {
	Heap, Resident                    int64
	Descriptors, Mappings, Goroutines int
}

// Measure returns the usage of this process after a garbage collection.
func Measure() Usage {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	usage := Usage{Heap: int64(m.HeapAlloc), Goroutines: runtime.NumGoroutine(), Resident: Resident()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		usage.Descriptors = len(fds)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		usage.Mappings = strings.Count(string(maps), "\n")
	}
	return usage
}

// Resident returns the resident memory in bytes.
func Resident() int64 {
	var total, resident int64
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		fmt.Sscan(string(b), &total, &resident)
	}
	return resident * int64(os.Getpagesize())
}

// Slope returns the least-squares slope of y over x.
func Slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
