// Package fork starts processes that die with this one. The kernel sends a child
// its parent-death signal when the thread that forked it ends, and the Go runtime
// ends threads when it likes: so one thread forks, and lives as long as its
// children.
package fork

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Thread forks. Its methods may be called concurrently.
type Thread struct{ do chan func() }

// New starts a thread.
func New() *Thread {
	t := &Thread{do: make(chan func())}
	go t.run(func() {})
	return t
}

// run forks on a thread of its own, and says when it has one.
func (t *Thread) run(locked func()) {
	// Never unlocked: the thread ends with this goroutine, with whatever Do has
	// changed of it.
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// But for the main thread, which the runtime keeps. It is held until another
		// goroutine has a thread, which then is another one.
		moved := make(chan struct{})
		go t.run(func() { close(moved) })
		<-moved
		runtime.UnlockOSThread()
		return
	}
	locked()
	for f := range t.do {
		f()
	}
}

// Do calls f on the thread, and returns when that has.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.do <- func() { defer close(done); f() }
	<-done
}

// Start starts cmd in a process group of its own, to be killed when this process
// ends, in whatever way.
func (t *Thread) Start(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	t.Do(func() { err = cmd.Start() })
	return err
}

// Close ends the thread. What it has started is killed, if it has not ended.
func (t *Thread) Close() { close(t.do) }
