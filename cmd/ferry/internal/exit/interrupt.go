package exit

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// An Interruption records the signal that has interrupted a command.
type Interruption struct{ number atomic.Int32 }

type interruptionKey struct{}

// WithInterruption returns a context, and the record of the signals of all contexts that NotifyContext derives from it.
func WithInterruption(ctx context.Context) (context.Context, *Interruption) {
	i := new(Interruption)
	return context.WithValue(ctx, interruptionKey{}, i), i
}

// Status returns the exit status of a command that has failed with a status: 128 plus the signal's number if it was
// interrupted, as a shell reports it.
func (i *Interruption) Status(status int) int {
	if n := i.number.Load(); n != 0 && status != 0 {
		return 128 + int(n)
	}
	return status
}

// NotifyContext returns a context that ends with the first of some signals, as signal.NotifyContext does, and records
// that signal.
func NotifyContext(parent context.Context, signals ...os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	received := make(chan os.Signal, 1)
	signal.Notify(received, signals...)
	go func() {
		select {
		case s := <-received:
			if i, ok := ctx.Value(interruptionKey{}).(*Interruption); ok {
				number, _ := s.(syscall.Signal)
				i.number.CompareAndSwap(0, int32(number))
			}
			cancel(fmt.Errorf("%v signal received", s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		cancel(nil)
	}
}
