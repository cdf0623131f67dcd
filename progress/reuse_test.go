package progress

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// One of two goroutines that wait for a request takes and reuses it before the other has run. The new wait must not concern the other one.
func TestCompletion_ReusedBeforeWaiterRuns_HasNewWaiter(t *testing.T) {
	e := New(Options{})
	defer e.Close()
	var c Completion
	e.Lock()
	e.pollToken.set() // the first of the two polls
	second := make(chan error, 1)
	go func() {
		e.Lock()
		defer e.Unlock()
		second <- e.Wait(context.Background(), &c, nil)
	}()
	for e.parkedWaits == 0 {
		e.Unlock()
		runtime.Gosched()
		e.Lock()
	}
	e.Complete(&c)
	c.Reset() // in use again, and the second has not had the lock since
	stop, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	cancel(cause)
	if err := e.Wait(stop, &c, nil); !errors.Is(err, cause) {
		t.Errorf("a wait of the new use: %v, want %v", err, cause)
	}
	e.pollToken.clear()
	e.Unlock()
	if err := <-second; err != nil {
		t.Errorf("the second waiter, which was woken: %v", err)
	}
}
