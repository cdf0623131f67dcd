package nettest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A namespace is a network namespace, initially with a loopback interface only. It has no name and
// exists as long as this file is open or a process or socket uses it.
type namespace struct{ *os.File }

func newNamespace() (ns namespace, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create network namespace: %w: need root or CAP_SYS_ADMIN", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		ns = namespace{f}
		return err
	})
	return ns, err
}

// onThread calls f on a thread of its own, which ends afterwards.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // Without UnlockOSThread, the thread ends with the goroutine.
		done <- f()
	}()
	return <-done
}

// do calls f in the namespace.
func (ns namespace) do(f func() error) error {
	return onThread(func() error {
		if err := ns.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves this thread into the namespace.
func (ns namespace) enter() error {
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// run runs a command in the namespace. The command inherits files as descriptors from 3 on.
func (ns namespace) run(command string, files ...*os.File) error {
	return ns.do(func() error {
		words := strings.Fields(command)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.ExtraFiles = files
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}
