package progress

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// A panic under the lock, from a hook, a component or ferry itself, leaves the lock held. Deferred calls of the program would then wait for the lock
// without end, and Go prints a panic only after the deferred calls have returned. Releasing the lock by a deferred call takes 16 instructions in each
// send and receive, 4.6 % of a small message. A goroutine that has waited long for the lock therefore searches stacks for such a panic, and stops the
// engine if it finds one.

// StoppedError is the panic value of Lock after a panic has stopped the engine. It wraps framework.ErrClosed.
type StoppedError struct {
	// Of the goroutine that panicked. Empty if it is the caller's.
	stack string
}

func (e *StoppedError) Error() string {
	text := "the progress engine has stopped, since a goroutine panicked in one of its calls"
	if e.stack != "" {
		text += ":\n" + e.stack
	}
	return text
}

// Unwrap returns framework.ErrClosed.
func (e *StoppedError) Unwrap() error { return framework.ErrClosed }

// Check returns an error that wraps *StoppedError if the engine, or the process's engine
// of a rank, has stopped, and nil otherwise. It waits for the lock as Lock does. Calls that
// programs defer use it before Lock.
func (e *Engine) Check() error {
	for _, l := range []*lock{&e.lock, &e.processEngine.lock} {
		if !l.lockUntil(func() bool { return l.stoppedErr.Load() != nil }) {
			return fmt.Errorf("progress: %w", l.stoppedErr.Load())
		}
		l.Unlock()
	}
	return nil
}

// Numbers of sleeps in lockUntil after which stacks are searched. A sleep takes 70 us.
const (
	sleepsPerOwnStack = 128  // The caller's stack.
	sleepsPerStacks   = 1024 // All stacks, which stops the program for a moment.
)

// originalFirst is the time that other goroutines wait before they panic, so that the program ends with the original panic.
const originalFirst = 300 * time.Millisecond

// searching is set while a goroutine searches all stacks.
var searching atomic.Bool

// search stops the engine if a goroutine has panicked under the lock. The caller has slept
// that many times for the lock.
func (l *lock) search(sleeps int) {
	if l.stoppedErr.Load() != nil {
		return
	}
	if sleeps%sleepsPerOwnStack == 0 && isPanicking() {
		l.stoppedErr.CompareAndSwap(nil, &StoppedError{})
	}
	if sleeps%sleepsPerStacks == 0 && searching.CompareAndSwap(false, true) {
		defer searching.Store(false)
		if stack := panickingStack(allStacks()); stack != "" {
			l.stoppedErr.CompareAndSwap(nil, &StoppedError{stack})
		}
	}
}

// raise panics in a goroutine that needs the lock of a stopped engine.
func (l *lock) raise() {
	if !isPanicking() {
		time.Sleep(originalFirst)
	}
	panic(l.stoppedErr.Load())
}

// modulePrefix begins the names of all functions of ferry.
var modulePrefix = strings.TrimSuffix(reflect.TypeFor[Engine]().PkgPath(), "progress")

// lockHolders are the folders of ferry with functions that hold the lock during calls. Package mpi calls functions of the program without it.
var lockHolders = []string{"assembly", "btl", "match", "mtl", "pml", "progress"}

// holdsLock reports whether a function may be called under the lock, or call others under it.
func holdsLock(function string) bool {
	name, isFerry := strings.CutPrefix(function, modulePrefix)
	end := strings.IndexAny(name, "/.")
	if !isFerry || end < 0 {
		return false
	}
	pkg, _, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
	return slices.Contains(lockHolders, name[:end]) && !strings.HasSuffix(pkg, "_test")
}

// isPanicking reports whether the caller is a deferred call of a panic that began in a
// function that holdsLock or below one. runtime.Goexit does not count, since kits end
// goroutines by it.
func isPanicking() bool {
	pcs := make([]uintptr, 64)
	began := false
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if began && holdsLock(f.Function) {
				return true
			}
			began = began || f.Function == "runtime.gopanic"
		}
		if n < len(pcs) {
			return false
		}
	}
}

// maxStacks limits allStacks, in bytes.
const maxStacks = 64 << 20

// allStacks returns the stacks of all goroutines, as runtime.Stack formats them.
func allStacks() string {
	for size := 1 << 20; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size || size >= maxStacks {
			return string(b[:n])
		}
	}
}

// panickingStack returns the first stack for which isPanicking would be true, or "".
func panickingStack(stacks string) string {
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		began := false
		for line := range strings.Lines(stack) {
			if began && holdsLock(line) {
				return stack
			}
			began = began || strings.HasPrefix(line, "panic(")
		}
	}
	return ""
}
