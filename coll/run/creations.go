package run

import (
	"context"
	"sync"

	"github.com/ferrympi/ferry/pml"
)

// creationWaits are the waits of creations of communicators that do not use messages of collectives.
type creationWaits struct {
	mu sync.Mutex
	// Of ContextUntilBroken.
	cancels map[context.Context]context.CancelCauseFunc
	// Receives of CancelAtClose with their generations.
	receives map[*pml.Request]uint32
}

// ContextUntilBroken returns a context that also ends when the collectives are broken. The caller
// calls stop.
func (k *State) ContextUntilBroken(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(background(ctx))
	w := &k.creations
	w.mu.Lock()
	defer w.mu.Unlock()
	if earlier := k.Broken(); earlier != nil {
		cancel(earlier)
	}
	if w.cancels == nil {
		w.cancels = map[context.Context]context.CancelCauseFunc{}
	}
	w.cancels[ctx] = cancel
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.cancels, ctx)
		cancel(nil)
	}
}

// EndCreations ends the contexts of ContextUntilBroken.
func (k *State) EndCreations(why error) {
	k.creations.mu.Lock()
	defer k.creations.mu.Unlock()
	for _, cancel := range k.creations.cancels {
		cancel(why)
	}
}

// CancelAtClose lets Close cancel a receive. done ends that, and is called when the receive is
// complete.
func (k *State) CancelAtClose(q *pml.Request, generation uint32) (done func()) {
	w := &k.creations
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.receives == nil {
		w.receives = map[*pml.Request]uint32{}
	}
	w.receives[q] = generation
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.receives[q] == generation { // Otherwise it is in use again.
			delete(w.receives, q)
		}
	}
}

func (w *creationWaits) cancelReceives() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q, generation := range w.receives {
		_ = q.Cancel(generation) // No effect after its completion.
	}
}
