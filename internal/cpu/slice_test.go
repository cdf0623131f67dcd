package cpu

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSlice_PresentAndNewThreads_AreLimited(t *testing.T) {
	if a, err := unix.SchedGetAttr(0, 0); err != nil || a.Runtime == 0 || a.Policy != unix.SCHED_NORMAL {
		t.Skipf("no time slices on this system: %+v, %v", a, err)
	}
	const want = time.Millisecond / 5
	if err := Slice(want); err != nil {
		t.Fatal(err)
	}
	if err := Slice(time.Second); err != nil { // Longer, thus no change.
		t.Fatal(err)
	}
	// Locked threads, some of them new.
	stay, locked := make(chan struct{}), make(chan struct{})
	defer close(stay)
	for range 8 {
		go func() {
			runtime.LockOSThread()
			locked <- struct{}{}
			<-stay
		}()
	}
	for range 8 {
		<-locked
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tasks) < 9 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		if a, err := unix.SchedGetAttr(tid, 0); err == nil && a.Runtime != uint64(want) {
			t.Errorf("thread %d has a slice of %v", tid, time.Duration(a.Runtime))
		}
	}
}

func TestSlice_OtherPolicy_IsUnchanged(t *testing.T) {
	runtime.LockOSThread() // Not unlocked, so that the thread ends with the test.
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skip(err)
	}
	a := *before
	if a.Policy, a.Nice = unix.SCHED_BATCH, 0; unix.SchedSetAttr(0, &a, 0) != nil {
		t.Skip("SCHED_BATCH is not allowed here")
	}
	if before, err = unix.SchedGetAttr(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := Slice(time.Millisecond / 10); err != nil {
		t.Fatal(err)
	}
	after, err := unix.SchedGetAttr(0, 0)
	if err != nil || *after != *before {
		t.Errorf("attributes %+v changed to %+v, %v", before, after, err)
	}
}
