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

// child is a command that ends with this process. A goroutine reaps it when it exits.
type child struct {
	cmd *exec.Cmd
	// The kernel kills the child at the end of this thread.
	thread *fork.Thread
	// Read ends. Reads end shortly after the child, even if other processes hold the write ends.
	stdout, stderr *os.File
	exited         chan struct{}
}

// outputGrace is the time for reading the last output of a child that has exited. A child of the child may hold the output open.
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
	_ = c.cmd.Wait() // ProcessState has the status.
	c.thread.Close()
	late := time.Now().Add(outputGrace)
	_ = c.stdout.SetReadDeadline(late)
	_ = c.stderr.SetReadDeadline(late)
	close(c.exited)
}

// kill kills the process group of the child, which includes the children of a script.
func (c *child) kill() {
	if c.cmd.Process.Kill() == nil {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// exitsWithin reports whether the process exits within a time.
func (c *child) exitsWithin(within time.Duration) bool {
	select {
	case <-c.exited:
		return true
	case <-time.After(within):
		return false
	}
}

// status blocks until the child has exited, and returns its status, for example "signal: killed".
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

// useAllProcessors lets the thread and its children run on all processors. Otherwise the plugin of a bound rank would share the processor that
// the rank polls on (see cpu.ForRanks).
func useAllProcessors() {
	var all unix.CPUSet
	for i := range len(all) * bits.UintSize {
		all.Set(i)
	}
	_ = unix.SchedSetaffinity(0, &all) // After an error the affinity is unchanged.
}
