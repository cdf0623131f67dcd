package trial

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestPatience_ProcessWasStopped_LosesOneStep(t *testing.T) {
	p := NewPatience(time.Hour)
	p.lastCheckAt = p.lastCheckAt.Add(-24 * time.Hour)
	if p.Over() {
		t.Error("a process that was stopped for a day has no time left")
	}
	for i := 0; !p.Over(); i++ {
		if i == 20 {
			t.Fatalf("after twenty steps %v is left", p.timeLeft)
		}
		p.lastCheckAt = p.lastCheckAt.Add(-24 * time.Hour)
	}
}

func TestWithin_EarlierCallerWithdrew_WaitsForItsCall(t *testing.T) {
	name := t.Name()
	ended, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	begun := make(chan struct{})
	go func() { <-begun; cancel() }()
	hold := func(context.Context) (int, error) { close(begun); <-release; return 1, nil }
	if _, err := Within(ended, time.Hour, name, hold, func(int) {}); !errors.Is(err, ErrHangs) || !errors.Is(err, context.Canceled) {
		t.Fatalf("a caller that withdrew: %v", err)
	}
	next := waiting{t.Context(), sync.OnceFunc(func() { close(release) })}
	if _, err := Within(next, time.Hour, name, func(context.Context) (int, error) { return 2, nil }, func(int) {}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// waiting is a context that reports a wait for its end.
type waiting struct {
	context.Context
	isAwaited func()
}

func (w waiting) Done() <-chan struct{} {
	w.isAwaited()
	return w.Context.Done()
}

func TestWithin_EarlierCallIsOverdue_FailsAtOnce(t *testing.T) {
	release := make(chan struct{})
	hang := func(context.Context) (int, error) { <-release; return 0, errors.New("late") }
	for range 2 { // The second call does not begin.
		if _, err := Within(t.Context(), time.Millisecond, t.Name(), hang, func(int) {}); !errors.Is(err, ErrHangs) {
			t.Errorf("a call that does not return: %v", err)
		}
	}
	v, ok := abandonedCalls.Load(t.Name())
	if !ok {
		t.Fatal("the call is not recorded")
	}
	close(release)
	<-v.(*abandonedCall).returned
}
