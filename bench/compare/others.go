package main

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// busy is how long all processors together have worked since the machine started,
// or were taken away by the host, for whomever.
func busy() (time.Duration, error) {
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("load of the processors: %w", err)
	}
	return worked(stat.CPUTotal), nil
}

// worked leaves out waiting. Guests are part of User.
func worked(c procfs.CPUStat) time.Duration {
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second))
}

// others is how many processors worked for others than a job, while it ran and
// used the given time itself. The kernel's hundredths of a second make it coarse
// for a job of some milliseconds; medians tell.
func others(all, own, whole time.Duration) float64 {
	return max(0, float64(all-own)/float64(max(whole, 1)))
}
