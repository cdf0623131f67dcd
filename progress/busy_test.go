package progress

import (
	"errors"
	"runtime"
	"testing"
)

// A third goroutine polls, so that
// both waits of one completion park. The second replaced the first one's Waiter, and the
// first hung.
func TestWait_SecondWaiterWhileAnotherPolls_ReturnsErrBusy(t *testing.T) {
	e := New(Options{})
	defer e.Close()
	var c Completion
	e.Lock()
	e.pollToken.set() // by the third goroutine
	first := make(chan error, 1)
	go func() {
		e.Lock()
		defer e.Unlock()
		first <- e.Wait(t.Context(), &c, nil)
	}()
	for e.parkedWaits == 0 {
		e.Unlock()
		runtime.Gosched()
		e.Lock()
	}
	second := make(chan error, 1)
	go func() {
		e.Lock()
		defer e.Unlock()
		second <- e.Wait(t.Context(), &c, nil)
	}()
	for len(second) == 0 && e.parkedWaits == 1 {
		e.Unlock()
		runtime.Gosched()
		e.Lock()
	}
	if e.parkedWaits != 1 {
		t.Errorf("%d waits of one completion are parked, want 1", e.parkedWaits)
	}
	e.Complete(&c)
	e.pollToken.clear()
	e.Unlock()
	if err := <-second; !errors.Is(err, ErrBusy) {
		t.Errorf("second wait: %v, want ErrBusy", err)
	}
	if err := <-first; err != nil {
		t.Errorf("first wait: %v", err)
	}
}
