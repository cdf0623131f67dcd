package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// ticks is USER_HZ, the unit of /proc/stat: 100 per second on every Linux port
// that Go has.
const ticks = 100

// busy is how long all processors together have worked since the machine started,
// or were taken away by the host, for whomever.
func busy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("load of the processors: %w", err)
	}
	return parseBusy(string(b))
}

// parseBusy reads the first line of /proc/stat (proc_stat(5)): user, nice,
// system, idle, iowait, irq, softirq, steal. Guests are part of user.
func parseBusy(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	var user, nice, system, idle, iowait, irq, softirq, steal uint64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0, fmt.Errorf("load of the processors: %.80q is no line of /proc/stat: %w", line, err)
	}
	return time.Duration(user+nice+system+irq+softirq+steal) * time.Second / ticks, nil
}

// others is how many processors worked for others than a job, while it ran and
// used the given time itself. Ticks make it coarse for a job of some
// milliseconds; medians tell.
func others(all, own, whole time.Duration) float64 {
	return max(0, float64(all-own)/float64(max(whole, 1)))
}
