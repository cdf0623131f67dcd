package cpu

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Slice limits the time slice of all threads of this process and of their later threads. The
// share of processor time stays, with shorter slices and a shorter delay before the process runs.
// The slice also bounds the cost of Yield: since Linux 6.18 a yielding thread runs again after
// the other thread has consumed a slice of the same length.
//
// Threads with a shorter slice or another policy than SCHED_OTHER are unchanged. Linux accepts
// 0.1 ms to 100 ms. Before 6.12 Slice has no effect.
func Slice(d time.Duration) error {
	seen := map[string]bool{}
	// A thread not yet limited may have started new ones, so that the list is read until it is
	// complete.
	for hasNew := true; hasNew; {
		hasNew = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if seen[task.Name()] {
				continue
			}
			seen[task.Name()], hasNew = true, true
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			if err := limitSlice(tid, d); err != nil && err != unix.ESRCH {
				return err
			}
		}
	}
	return nil
}

// limitSlice limits the slice of one thread.
func limitSlice(tid int, d time.Duration) error {
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL || a.Runtime <= uint64(d) {
		return err
	}
	a.Runtime = uint64(d)
	return unix.SchedSetAttr(tid, a, 0)
}
