package launch

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
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
// on the given processors only; none: on all that this process may use.
func (f *forker) start(cmd *exec.Cmd, places []int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	f.do <- func() { result <- startBound(cmd, places) }
	return <-result
}

// startBound runs on the forker's thread: a child inherits the affinity of the
// thread that makes it.
func startBound(cmd *exec.Cmd, places []int) error {
	if len(places) == 0 {
		return cmd.Start()
	}
	var before, mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, cpu := range places {
		mask.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &mask); err != nil {
		return err
	}
	err := cmd.Start()
	// Setting back a mask that was just read can't fail, and the process that
	// may run by now would not be the wiser.
	_ = unix.SchedSetaffinity(0, &before)
	return err
}

// cores returns the processors that this process may run on, in the order in
// which ranks should get them: first one hardware thread of each core, then the
// second ones, and so on.
func cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("bind to cores: %w", err)
	}
	var out []int
	threads := map[string]int{} // of a core that were met so far
	round := map[int]int{}      // of a processor: how many threads of its core come before
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			core := siblings(cpu)
			out, round[cpu] = append(out, cpu), threads[core]
			threads[core]++
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(round[a], round[b]) })
	if len(out) == 0 {
		return nil, fmt.Errorf("bind to cores: the affinity mask is empty")
	}
	return out, nil
}

// siblings names the core of a processor: the list of its hardware threads. A
// machine that doesn't say has one per core.
func siblings(cpu int) string {
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	if err != nil {
		return fmt.Sprint(cpu)
	}
	return strings.TrimSpace(string(b))
}
