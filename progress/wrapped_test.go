package progress

import (
	"context"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/doorbell"
)

// wrapper is a source in front of another one, as fault injection is.
type wrapper struct{ inner Source }

func (w wrapper) Poll() int { return w.inner.Poll() }

func (w wrapper) Unwrap() any { return w.inner }

func TestWrappedSourceIsStillAwaited(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := New(Options{Spin: 1, Yield: 1})
	inner := &box{e: e, bell: doorbell.New()}
	outer := wrapper{inner}
	e.Add(outer)
	defer e.Close()
	defer e.Remove(outer)
	for range 100 {
		var c Completion
		e.Lock()
		inner.waits = append(inner.waits, &c)
		e.Unlock()
		ended := make(chan error, 1)
		go func() {
			e.Lock()
			defer e.Unlock()
			ended <- e.Wait(ctx, &c, nil)
		}()
		// The keeper sleeps on the inner source's bell, or will: post rings there.
		inner.post()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	e.Lock()
	defer e.Unlock()
	if e.bell != inner.bell {
		t.Error("the engine does not sleep on the bell of the wrapped source")
	}
}
