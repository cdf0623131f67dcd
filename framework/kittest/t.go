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

// T is the testing.T of a running case. Methods that end the case end the calling goroutine, which may be one of Go. The
// context of a failed case ends.
type T struct {
	ctx  context.Context
	stop context.CancelCauseFunc
	// Those of Go.
	goroutines sync.WaitGroup

	mu            sync.Mutex
	hasFailed     bool
	errs          []error
	cleanups      []func() error
	describeState func() string
}

// cleanupLimit is the time for cleanup after the end of the context.
const cleanupLimit = 3 * time.Second

var errOver = errors.New("the case has failed elsewhere")

// Run runs a case and returns its error. A case that does not return after the end of its context is abandoned, and the error
// has the output of OnHang.
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
	case <-time.After(cleanupLimit):
	}
	return errors.Join(t.outcome(), fmt.Errorf("%w, and the case does not return%s", context.Cause(t.ctx), t.hangReport()))
}

// hangReport returns the output of OnHang. It has a limit, because the hung case may hold a lock.
func (t *T) hangReport() string {
	t.mu.Lock()
	state := t.describeState
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
	t.goroutines.Wait()
	for _, f := range slices.Backward(t.cleanups) {
		if err := f(); err != nil {
			t.Errorf("%w", err)
		}
	}
}

// outcome returns the failure if there is one, and the reason to skip otherwise.
func (t *T) outcome() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wrong := slices.DeleteFunc(slices.Clone(t.errs), func(err error) bool { return errors.Is(err, ErrSkip) }); len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	return errors.Join(t.errs...)
}

// Context returns the context of the case. It ends when the case must return.
func (t *T) Context() context.Context { return t.ctx }

// Cleanup registers f for the end of the case. The last one runs first.
func (t *T) Cleanup(f func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// OnHang sets the function that describes the state of a hung case.
func (t *T) OnHang(state func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.describeState = state
}

// Errorf records a failure without ending the case. It ignores failures after the end of the context, which are
// consequences of an earlier one.
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

// Fatalf records a failure and ends the case.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	t.mu.Lock()
	t.hasFailed = true
	t.mu.Unlock()
	t.stop(errOver)
	runtime.Goexit()
}

// Skipf ends a case that does not apply.
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

// Same ends the case unless got equals the payload sent.
func (t *T) Same(what string, got, sent []byte) {
	if err := Differ(got, sent); err != nil {
		t.Fatalf("%s: %w", what, err)
	}
}

// Differ describes the first difference between got and the payload sent.
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

// Payload returns n bytes that depend on seed and offset, also at distances of a page and more.
func Payload(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed*31 + 1)
	}
	return b
}

// Until yields until cond returns true.
func (t *T) Until(what string, cond func() bool) {
	for !cond() {
		if t.ctx.Err() != nil {
			t.Fatalf("%s: %w", what, context.Cause(t.ctx))
		}
		runtime.Gosched()
	}
}

// Go calls f in a new goroutine. The returned function waits for its end and ends the case if a goroutine has failed. The end
// of the case waits for f as well.
func (t *T) Go(f func()) (wait func()) {
	done := make(chan struct{})
	t.goroutines.Go(func() {
		defer close(done)
		f()
	})
	return func() {
		<-done
		t.mu.Lock()
		failed := t.hasFailed
		t.mu.Unlock()
		if failed {
			runtime.Goexit()
		}
	}
}

// Each calls f for 0 to n-1 concurrently and waits for all.
func (t *T) Each(n int, f func(i int)) {
	waits := make([]func(), n)
	for i := range waits {
		waits[i] = t.Go(func() { f(i) })
	}
	for _, wait := range waits {
		wait()
	}
}
