package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Orphans are descendants of ranks in other process groups and sessions, after the end of their parents.
// The kernel makes this process their parent (PR_SET_CHILD_SUBREAPER). Orphans may run while the job
// runs. They are reaped when they end, so that a long job does not fill the process table, and killed at
// its end.

// reapDelay is the delay between the end of a child and the search for zombies, so that one search
// serves many orphans and ranks.
const reapDelay = 100 * time.Millisecond

// sweepStep is the interval between the searches of a sweep.
const sweepStep = time.Millisecond

// orphanReaper reaps the orphans of a job. Its zero value reaps none.
type orphanReaper struct {
	// SIGCHLD; nil without Job.SweepsDescendants.
	childEnded <-chan os.Signal
	// Next time to reap orphans, or nil.
	reapAt <-chan time.Time
	// Of children that are not the job's.
	excludedPIDs []int
}

// schedule schedules the next reaping.
func (o *orphanReaper) schedule() {
	if o.reapAt == nil {
		o.reapAt = time.After(reapDelay)
	}
}

// adopt makes this process the parent of the job's orphans. It returns the present children, which are
// not the job's. A shell may have started them before it executed this program.
func adopt() (others []int, err error) {
	// The kernel's list may be incomplete if a child ends meanwhile, and a child that is not
	// in others will be killed. The scan of all processes is complete, but slower.
	if others = children(); len(others) > 0 {
		others = scanChildren()
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return others, fmt.Errorf("orphans of ranks will not be killed: %w", err)
	}
	return others, nil
}

// reap reaps the orphans that have ended. excluded are children that are not orphans.
func reap(excluded []int) {
	for _, pid := range children() {
		if !slices.Contains(excluded, pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// sweep kills the children of this process that are not excluded, and the orphans that they
// leave, until none is left or the limit is over. It returns those that could not be killed.
func sweep(excluded []int, limit time.Duration) (left []int) {
	deadline := time.Now().Add(limit)
	for !childless() {
		left = slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(excluded, pid) })
		// A list made while children end may be incomplete.
		if len(left) == 0 && len(excluded) > 0 {
			left = slices.DeleteFunc(scanChildren(), func(pid int) bool { return slices.Contains(excluded, pid) })
			if len(left) == 0 {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return left
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL) // Failures are left at the end.
		}
		time.Sleep(sweepStep)
		for _, pid := range left {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	return nil
}

// childless reports whether this process has no children. It costs one system call.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// children returns the children of this process, including zombies.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	if len(lists) == 0 { // The kernel lacks CONFIG_PROC_CHILDREN.
		return scanChildren()
	}
	for _, list := range lists {
		b, _ := os.ReadFile(list) // Fails for a thread that has ended.
		for _, word := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// scanChildren finds the children among all processes.
func scanChildren() (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// The state and the parent follow the name, which may contain any byte.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
