package launchers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval is the poll interval of conditions without a notification.
const pollInterval = 5 * time.Millisecond

// markedProcesses returns the processes with a variable NAME=value in their initial environment, regardless
// of their parents. Zombies have no environment.
func markedProcesses(mark string) (pids []int) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && hasMark(pid, mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func hasMark(pid int, mark string) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // An ended process has no environment.
	return slices.ContainsFunc(bytes.Split(b, []byte{0}), func(v []byte) bool { return string(v) == mark })
}

// describe returns ids and command lines of processes.
func describe(pids []int) (all []string) {
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		all = append(all, fmt.Sprintf("%d %q", pid, bytes.TrimRight(bytes.ReplaceAll(line, []byte{0}, []byte{' '}), " ")))
	}
	return all
}

// emptyPolls is the number of consecutive polls without a process before awaitNone returns. A process
// has no environment for a moment during execve.
const emptyPolls = 3

// awaitNone waits until no process has the mark. It returns those that remain after limit.
func awaitNone(mark string, limit time.Duration) []int {
	return pollMarked(mark, limit, func([]int) {})
}

// killAll kills the processes with a mark and their new children. It returns those that it cannot
// kill.
func killAll(mark string) []int {
	return pollMarked(mark, 10*time.Second, func(pids []int) {
		for _, pid := range pids {
			killMarked(pid, mark)
		}
	})
}

// pollMarked polls for processes with the mark until there are none, and calls do with those that it
// finds.
func pollMarked(mark string, limit time.Duration, do func(pids []int)) []int {
	none := 0
	for deadline := time.Now().Add(limit); ; time.Sleep(pollInterval) {
		pids := markedProcesses(mark)
		if len(pids) > 0 {
			none = 0
		} else if none++; none == emptyPolls {
			return nil
		}
		if time.Now().After(deadline) {
			return pids
		}
		do(pids)
	}
}

// killMarked kills a process if it has the mark. The id may belong to another process by now.
func killMarked(pid int, mark string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // It has ended.
	}
	defer unix.Close(fd)
	if hasMark(pid, mark) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
