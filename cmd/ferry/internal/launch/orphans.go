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

// What ranks leave behind in process groups and sessions of their own becomes this
// process's to end: the kernel makes it the parent of all descendants whose own parent has
// ended (PR_SET_CHILD_SUBREAPER). While the job runs those may go on; when they end they
// are reaped, so that a long job does not fill the process table.

// reapDelay is how long orphans that have ended wait to be reaped, so that one look is
// enough for many of them, and for ranks, whose ends look alike.
const reapDelay = 100 * time.Millisecond

// sweepStep is how often a sweep looks again.
const sweepStep = time.Millisecond

// adopt makes this process the parent of the job's orphans. It returns the children that
// there are already, which are not the job's: a shell may have started them before it
// became this program.
func adopt() (others []int, err error) {
	// The kernel's list may lack some if one of them ends meanwhile, and what is not on it
	// will be killed. To look at all processes takes longer; mostly there are no children.
	if others = children(); len(others) > 0 {
		others = scanChildren()
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return others, fmt.Errorf("processes that ranks leave behind in sessions of their own will not be killed: %w", err)
	}
	return others, nil
}

// reap takes away the orphans that have ended. The processes of not are somebody else's
// to wait for.
func reap(not []int) {
	for _, pid := range children() {
		if !slices.Contains(not, pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// sweep kills the children of this process, but for those of not, and what then becomes
// its children, until there are none or the time is up. It returns those that can't be
// killed.
func sweep(not []int, limit time.Duration) (left []int) {
	deadline := time.Now().Add(limit)
	for !childless() {
		left = slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(not, pid) })
		// A list that is made while children end may lack some: one look more.
		if len(left) == 0 && len(not) > 0 {
			left = slices.DeleteFunc(scanChildren(), func(pid int) bool { return slices.Contains(not, pid) })
			if len(left) == 0 {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return left
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL) // what it can't be sent to is left at the end
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

// children returns the children of this process, those included that have ended and are
// not reaped.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	if len(lists) == 0 { // a kernel without CONFIG_PROC_CHILDREN
		return scanChildren()
	}
	for _, list := range lists {
		b, _ := os.ReadFile(list) // of a thread that has ended meanwhile: none
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
		// The name in brackets may hold anything; behind it are the state and the parent.
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
