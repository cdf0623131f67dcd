package kittest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// T is a case that runs. Its methods that end the case end the goroutine that
// calls them, so that no step of a case needs to look at the outcome of the one
// before. They may be called from the goroutines of Go, too. When a case fails
// its context ends: nobody waits for one that has given up.
type T struct {
	ctx   context.Context
	stop  context.CancelCauseFunc
	begun sync.WaitGroup // by Go

	mu     sync.Mutex
	failed bool
	errs   []error
	after  []func() error
	state  func() string
}

// patience is how long a case may take to clean up, after its context has ended.
const patience = 3 * time.Second

var errOver = errors.New("the case has failed elsewhere")

// Run runs a case, and returns what is wrong. One that does not come back when its
// context ends is given up, and the error tells what OnHang shows.
func Run(ctx context.Context, f func(*T)) error {
	t := new(T)
	t.ctx, t.stop = context.WithCancelCause(ctx)
	defer t.stop(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer t.cleanup()
		f(t)
	}()
	select {
	case <-ended:
		return t.outcome()
	case <-t.ctx.Done():
	}
	select {
	case <-ended:
		return t.outcome()
	case <-time.After(patience):
	}
	return errors.Join(t.outcome(), fmt.Errorf("%w, and the case does not return%s", context.Cause(t.ctx), t.shown()))
}

// shown is what OnHang has to show. Whoever hangs may hold the lock that it needs.
func (t *T) shown() string {
	t.mu.Lock()
	state := t.state
	t.mu.Unlock()
	if state == nil {
		return ""
	}
	shown := make(chan string, 1)
	go func() { shown <- state() }()
	select {
	case s := <-shown:
		return "\n" + s
	case <-time.After(time.Second):
		return ", nor can it be inspected"
	}
}

func (t *T) cleanup() {
	t.begun.Wait()
	for _, f := range slices.Backward(t.after) {
		if err := f(); err != nil {
			t.Errorf("%w", err)
		}
	}
}

// outcome is what is wrong: a failure wins over a reason to skip.
func (t *T) outcome() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wrong := slices.DeleteFunc(slices.Clone(t.errs), func(err error) bool { return errors.Is(err, ErrSkip) }); len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	return errors.Join(t.errs...)
}

// Context ends when the case has to come back.
func (t *T) Context() context.Context { return t.ctx }

// Cleanup has f called when the case has ended, the last one first.
func (t *T) Cleanup(f func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = append(t.after, f)
}

// OnHang sets what shows the state of a case that does not come back.
func (t *T) OnHang(state func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = state
}

// Errorf notes what is wrong; the case goes on. What only comes of a failure
// elsewhere, because that has ended the context, is not noted.
func (t *T) Errorf(format string, args ...any) {
	for _, arg := range args {
		if err, ok := arg.(error); ok && errors.Is(err, errOver) {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

// Fatalf notes what is wrong and ends the case.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	t.mu.Lock()
	t.failed = true
	t.mu.Unlock()
	t.stop(errOver)
	runtime.Goexit()
}

// Skipf ends the case, which does not apply.
func (t *T) Skipf(format string, args ...any) {
	t.Fatalf("%w: %s", ErrSkip, fmt.Sprintf(format, args...))
}

// Check ends the case if there is an error.
func (t *T) Check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%w", err)
	}
}

// Is ends the case unless err is target.
func (t *T) Is(what string, err, target error) {
	if !errors.Is(err, target) {
		t.Fatalf("%s: error %v, want %v", what, err, target)
	}
}

// Same ends the case unless got is what was sent.
func (t *T) Same(what string, got, sent []byte) {
	if err := Differ(got, sent); err != nil {
		t.Fatalf("%s: %w", what, err)
	}
}

// Differ says where got is not what was sent.
func Differ(got, sent []byte) error {
	if bytes.Equal(got, sent) {
		return nil
	}
	if len(got) != len(sent) {
		return fmt.Errorf("%d bytes came, and %d were sent", len(got), len(sent))
	}
	for i := range got {
		if got[i] != sent[i] {
			return fmt.Errorf("byte %d of %d is %#x, and %#x was sent", i, len(got), got[i], sent[i])
		}
	}
	return nil
}

// Payload returns n bytes that differ by seed and by place, at distances of a page and
// more, too.
func Payload(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed*31 + 1)
	}
	return b
}

// Until gives way to others until cond holds.
func (t *T) Until(what string, cond func() bool) {
	for !cond() {
		if t.ctx.Err() != nil {
			t.Fatalf("%s: %w", what, context.Cause(t.ctx))
		}
		runtime.Gosched()
	}
}

// Go calls f in a goroutine of its own. The result waits for its end, and ends the
// case if one has failed; a case that fails before waits for it, too.
func (t *T) Go(f func()) (wait func()) {
	done := make(chan struct{})
	t.begun.Go(func() {
		defer close(done)
		f()
	})
	return func() {
		<-done
		t.mu.Lock()
		failed := t.failed
		t.mu.Unlock()
		if failed {
			runtime.Goexit()
		}
	}
}

// Each calls f for 0 to n-1 at the same time, and waits for all.
func (t *T) Each(n int, f func(i int)) {
	waits := make([]func(), n)
	for i := range waits {
		waits[i] = t.Go(func() { f(i) })
	}
	for _, wait := range waits {
		wait()
	}
}
