package launch

import (
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/fork"
)

// newForker returns the thread that starts the ranks. They inherit what it has.
func newForker() *fork.Thread {
	t := fork.New()
	// A refusal costs speed only.
	t.Do(func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) })
	return t
}

// timerSlack is how late the kernel may wake a rank's thread that sleeps for a
// time. With the usual 50 us the Go runtime's monitor thread (sysmon) wakes every
// 70 us for the first milliseconds after each time when the process had nothing to
// do, and takes the processor from the thread that polls: 20 us each time on a
// virtual machine, which made the first 10,000 messages half as slow again
// (docs/decisions/hot-path.md). Processes inherit the value from the thread that
// makes them; a thread can't change it for another without privileges.
const timerSlack = time.Millisecond

// startOn starts cmd on the given processors only; none: on all that this process may
// use. A child inherits the affinity of the thread that makes it.
func startOn(t *fork.Thread, cmd *exec.Cmd, places []int) error {
	if len(places) == 0 {
		return t.Start(cmd)
	}
	var before, mask unix.CPUSet
	for _, cpu := range places {
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
