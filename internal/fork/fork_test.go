package fork

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The main thread does not end with its goroutine, so that its children would survive Close.
func TestThread_ManyStarts_NeverRunsOnMainThread(t *testing.T) {
	var busy sync.WaitGroup // Load, so that goroutines run on the main thread too.
	for range 4 {
		busy.Go(func() {
			for range 500 {
				f := New()
				f.Do(func() {
					if unix.Gettid() == unix.Getpid() {
						t.Error("the main thread forks")
					}
				})
				f.Close()
			}
		})
	}
	busy.Wait()
}

// With Pdeathsig alone, the end of the calling thread kills the child.
func TestStart_CallingThreadEnds_ChildSurvives(t *testing.T) {
	f := New()
	cmds := make([]*exec.Cmd, 10)
	var callers sync.WaitGroup
	for i := range cmds {
		cmds[i] = exec.Command("cat")
		in, err := cmds[i].StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		callers.Go(func() {
			runtime.LockOSThread() // Not unlocked, so that the thread ends with the goroutine.
			if err := f.Start(cmds[i]); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	ended := make(chan *exec.Cmd, len(cmds))
	for _, cmd := range cmds {
		go func() { _ = cmd.Wait(); ended <- cmd }()
	}
	select {
	case cmd := <-ended:
		t.Errorf("a child ended with its calling thread: %v", cmd.ProcessState)
	case <-time.After(100 * time.Millisecond):
	}
	f.Close()
	for range cmds {
		if st := (<-ended).ProcessState.Sys().(syscall.WaitStatus); st.Signal() != syscall.SIGKILL {
			t.Errorf("wait status %v, want SIGKILL", st)
		}
	}
}
