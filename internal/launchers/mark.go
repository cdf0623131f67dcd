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

// step is how often something is looked at again that can't be waited for.
const step = 5 * time.Millisecond

// marked returns the processes with a variable NAME=value in the environment with
// which they were started, whoever their parent is now. Those that have ended and are
// not reaped have none.
func marked(mark string) (pids []int) {
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
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // nothing of one that has ended
	return slices.ContainsFunc(bytes.Split(b, []byte{0}), func(v []byte) bool { return string(v) == mark })
}

// describe says what processes these are.
func describe(pids []int) (all []string) {
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		all = append(all, fmt.Sprintf("%d %q", pid, bytes.TrimRight(bytes.ReplaceAll(line, []byte{0}, []byte{' '}), " ")))
	}
	return all
}

// looks is how many looks in a row find no process before there is none: one that is just
// becoming another program has no environment for a moment.
const looks = 3

// awaitNone waits until no process has the mark, and returns those that still do when
// the time is up.
func awaitNone(mark string, limit time.Duration) []int { return until(mark, limit, func([]int) {}) }

// endAll kills the processes with a mark, and those that they start meanwhile. It
// returns those that it can't kill.
func endAll(mark string) []int {
	return until(mark, 10*time.Second, func(pids []int) {
		for _, pid := range pids {
			kill(pid, mark)
		}
	})
}

// until looks for processes with the mark until there are none, and calls do with those
// that there are.
func until(mark string, limit time.Duration, do func(pids []int)) []int {
	none := 0
	for deadline := time.Now().Add(limit); ; time.Sleep(step) {
		pids := marked(mark)
		if len(pids) > 0 {
			none = 0
		} else if none++; none == looks {
			return nil
		}
		if time.Now().After(deadline) {
			return pids
		}
		do(pids)
	}
}

// kill kills a process if it has the mark: its number may be another's by now.
func kill(pid int, mark string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if hasMark(pid, mark) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
