// Package procstat measures what this process takes, for tests of what grows.
package procstat

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// Usage is what this process takes.
type Usage struct {
	Heap, Resident                    int64 // bytes
	Descriptors, Mappings, Goroutines int
}

// Measure measures this process, after a collection.
func Measure() Usage {
	runtime.GC()
	debug.FreeOSMemory() // collects too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := Usage{Heap: int64(m.HeapAlloc), Goroutines: runtime.NumGoroutine(), Resident: Resident()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.Descriptors = len(fds)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		u.Mappings = strings.Count(string(maps), "\n")
	}
	return u
}

// Resident is the resident memory in bytes.
func Resident() int64 {
	var all, resident int64
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		fmt.Sscan(string(b), &all, &resident)
	}
	return resident * int64(os.Getpagesize())
}

// Slope is the least-squares rise of y per unit of x.
func Slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
