package launch

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A forker starts processes from one thread that lives as long as they do. The
// kernel sends a child its parent-death signal when the THREAD that forked it
// ends, and threads of the Go runtime may: ranks must outlive those, and not
// the launcher.
type forker struct{ do chan func() }

func newForker() *forker {
	f := &forker{do: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		// A refusal costs speed only.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0)
		defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // the default again
		for g := range f.do {
			g()
		}
	}()
	return f
}

// timerSlack is how late the kernel may wake a rank's thread that sleeps for a
// time. With the usual 50 us the Go runtime's monitor thread (sysmon) wakes every
// 70 us for the first milliseconds after each time when the process had nothing to
// do, and takes the processor from the thread that polls: 20 us each time on a
// virtual machine, which made the first 10,000 messages half as slow again
// (docs/decisions/hot-path.md). Processes inherit the value from the thread that
// makes them; a thread can't change it for another without privileges.
const timerSlack = time.Millisecond

// close ends the thread's loop; all processes must have ended.
func (f *forker) close() { close(f.do) }

// start starts cmd in a process group of its own, which dies with this process,
// bound to processor core unless that is negative.
func (f *forker) start(cmd *exec.Cmd, core int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	f.do <- func() { result <- startBound(cmd, core) }
	return <-result
}

// startBound runs on the forker's thread: a child inherits the affinity of the
// thread that makes it.
func startBound(cmd *exec.Cmd, core int) error {
	if core < 0 {
		return cmd.Start()
	}
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	err := cmd.Start()
	// Setting back a mask that was just read can't fail, and the process that
	// may run by now would not be the wiser.
	_ = unix.SchedSetaffinity(0, &before)
	return err
}
