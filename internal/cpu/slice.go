package cpu

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Slice asks the scheduler for turns of at most that long, for all threads of this process and
// those that they make. The process gets as much time as before, in smaller pieces: it is let in
// sooner when it has something to do. And it is what Yield costs: since Linux 6.18 a thread that offers its
// processor to one that computes comes back when that one has had a whole slice of the first one's.
//
// A thread keeps what is shorter already, and what is not scheduled as usual (SCHED_OTHER). Linux
// takes 0.1 ms to 100 ms, and before 6.12 it knows nothing of it: then nothing changes.
func Slice(d time.Duration) error {
	seen := map[string]bool{}
	// A thread that was made meanwhile may have been made by one whose turn was still to come.
	for again := true; again; {
		again = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if seen[task.Name()] {
				continue
			}
			seen[task.Name()], again = true, true
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			if err := slice(tid, d); err != nil && err != unix.ESRCH { // it has ended
				return err
			}
		}
	}
	return nil
}

func slice(tid int, d time.Duration) error {
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL || a.Runtime <= uint64(d) {
		return err
	}
	a.Runtime = uint64(d)
	return unix.SchedSetAttr(tid, a, 0)
}
