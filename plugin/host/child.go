package host

import (
	"math/bits"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/fork"
)

// child is a command that this process has started and that ends with it. A goroutine reaps it as
// soon as it exits.
type child struct {
	cmd            *exec.Cmd
	thread         *fork.Thread // The kernel kills the child when this thread ends
	stdout, stderr *os.File     // Read ends; reads end shortly after the child, even while other processes hold the other ends
	exited         chan struct{}
}

// outputGrace is the time for the last output of a child that has exited. A process of the child's
// own may hold its output open without end.
const outputGrace = 100 * time.Millisecond

// startChild starts a command in a new process group.
func startChild(cmd *exec.Cmd) (c *child, err error) {
	c = &child{cmd: cmd, exited: make(chan struct{})}
	var out, errors *os.File
	if c.stdout, out, err = os.Pipe(); err != nil {
		return nil, err
	}
	defer out.Close()
	if c.stderr, errors, err = os.Pipe(); err != nil {
		c.stdout.Close()
		return nil, err
	}
	defer errors.Close()
	cmd.Stdout, cmd.Stderr = out, errors
	c.thread = fork.New()
	if cpu.Available() == 1 {
		c.thread.Do(useAllProcessors)
	}
	if err := c.thread.Start(cmd); err != nil {
		c.thread.Close()
		c.stdout.Close()
		c.stderr.Close()
		return nil, err
	}
	go c.reap()
	return c, nil
}

func (c *child) reap() {
	_ = c.cmd.Wait() // the state has the status
	c.thread.Close()
	late := time.Now().Add(outputGrace)
	_ = c.stdout.SetReadDeadline(late)
	_ = c.stderr.SetReadDeadline(late)
	close(c.exited)
}

// kill kills the process and its group, so that the children of a script end too.
func (c *child) kill() {
	if c.cmd.Process.Kill() == nil {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// exits reports whether the process exits within a time.
func (c *child) exits(within time.Duration) bool {
	select {
	case <-c.exited:
		return true
	case <-time.After(within):
		return false
	}
}

// status blocks until the process has exited, and returns how, e.g. "signal: killed".
func (c *child) status() string {
	<-c.exited
	return c.cmd.ProcessState.String()
}

// wasKilled blocks until the process has exited, and reports whether SIGKILL has ended it.
func (c *child) wasKilled() bool {
	<-c.exited
	w, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}

// useAllProcessors lets the thread and its children run on all processors. A rank that is bound to
// one polls there, and its plugin would wait for the end of the rank's slice (see cpu.ForRanks).
func useAllProcessors() {
	var all unix.CPUSet
	for i := range len(all) * bits.UintSize {
		all.Set(i)
	}
	_ = unix.SchedSetaffinity(0, &all) // it stays where it is then
}
