package launch

import (
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/fork"
)

// newForker returns the thread that starts the ranks, which inherit its attributes.
func newForker() *fork.Thread {
	t := fork.New()
	// A refusal costs speed only.
	t.Do(func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) })
	return t
}

// timerSlack is the timer slack of ranks. With the usual 50 us, the Go runtime's monitor thread (sysmon) wakes every
// 70 us in the first milliseconds after each idle time, and takes the processor from the polling thread, for 20 us on a
// virtual machine, which made the first 10,000 messages take half as long again
// (docs/decisions/hot-path.md). Processes inherit the value from the thread that
// starts them. A thread cannot set it for another one without privileges.
const timerSlack = time.Millisecond

// startOn starts cmd on the given processors only, or without any on all of this process. A child inherits the affinity
// of the starting thread.
func startOn(t *fork.Thread, cmd *exec.Cmd, processors []int) error {
	if len(processors) == 0 {
		return t.Start(cmd)
	}
	var before, mask unix.CPUSet
	for _, cpu := range processors {
		mask.Set(cpu)
	}
	var err error
	t.Do(func() {
		if err = unix.SchedGetaffinity(0, &before); err == nil {
			err = unix.SchedSetaffinity(0, &mask)
		}
	})
	if err != nil {
		return err
	}
	// Setting back a mask that was just read can't fail, and the process that
	// may run by now would not be the wiser.
	defer t.Do(func() { _ = unix.SchedSetaffinity(0, &before) })
	return t.Start(cmd)
}
