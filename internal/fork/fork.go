// Package fork starts processes that end with this one. The kernel sends a child its
// parent-death signal when the thread that forked it exits, and the Go runtime may end
// threads at any time. Therefore a dedicated thread forks, and outlives its children.
package fork

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Thread is a dedicated thread that forks. Its methods are safe for concurrent use.
type Thread struct{ calls chan func() }

// New starts a thread.
func New() *Thread {
	t := &Thread{calls: make(chan func())}
	go t.run(func() {})
	return t
}

// run executes the calls on a locked thread other than the main one. It calls locked first.
func (t *Thread) run(locked func()) {
	// The thread is not unlocked, so that it ends with this goroutine and its changed state
	// is not reused.
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The runtime does not end the main thread. Holding it forces a second goroutine
		// onto another one.
		moved := make(chan struct{})
		go t.run(func() { close(moved) })
		<-moved
		runtime.UnlockOSThread()
		return
	}
	locked()
	for f := range t.calls {
		f()
	}
}

// Do calls f on the thread and blocks until f returns.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.calls <- func() { defer close(done); f() }
	<-done
}

// Start starts cmd in a new process group. The kernel kills the process when this one ends.
func (t *Thread) Start(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	t.Do(func() { err = cmd.Start() })
	return err
}

// Close ends the thread, and the kernel kills its children that are still running.
func (t *Thread) Close() { close(t.calls) }
