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

// TestForkingThreadIsNeverTheMainOne: that one does not end with its goroutine, and Close would
// leave the children of it alive.
func TestForkingThreadIsNeverTheMainOne(t *testing.T) {
	var busy sync.WaitGroup // so that the main thread has its turn
	for range 4 {
		busy.Go(func() {
			for range 500 {
				f := New()
				f.Do(func() {
					if unix.Gettid() == unix.Getpid() {
						t.Error("children are forked by the main thread")
					}
				})
				f.Close()
			}
		})
	}
	busy.Wait()
}

// TestChildOutlivesTheThreadThatAskedForIt: with Pdeathsig alone it is killed as soon as
// that thread ends.
func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	f := New()
	cmds := make([]*exec.Cmd, 10)
	var asked sync.WaitGroup
	for i := range cmds {
		cmds[i] = exec.Command("cat")
		in, err := cmds[i].StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		asked.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if err := f.Start(cmds[i]); err != nil {
				t.Error(err)
			}
		})
	}
	asked.Wait()
	ended := make(chan *exec.Cmd, len(cmds))
	for _, cmd := range cmds {
		go func() { _ = cmd.Wait(); ended <- cmd }()
	}
	select {
	case cmd := <-ended:
		t.Errorf("a child ends with the thread that asked for it: %v", cmd.ProcessState)
	case <-time.After(100 * time.Millisecond):
	}
	f.Close() // and this is the thread that forked
	for range cmds {
		if st := (<-ended).ProcessState.Sys().(syscall.WaitStatus); st.Signal() != syscall.SIGKILL {
			t.Errorf("a child ends with %v", st)
		}
	}
}
