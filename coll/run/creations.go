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
	cancelByContext map[context.Context]context.CancelCauseFunc
	// Receives of CancelAtClose with their generations.
	generationByReceive map[*pml.Request]uint32
}

// ContextUntilBroken returns a context that also ends when the collectives are broken. The caller
// calls stop.
func (k *State) ContextUntilBroken(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(background(ctx))
	w := &k.creationWaits
	w.mu.Lock()
	defer w.mu.Unlock()
	if earlier := k.Broken(); earlier != nil {
		cancel(earlier)
	}
	if w.cancelByContext == nil {
		w.cancelByContext = map[context.Context]context.CancelCauseFunc{}
	}
	w.cancelByContext[ctx] = cancel
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.cancelByContext, ctx)
		cancel(nil)
	}
}

// EndCreations ends the contexts of ContextUntilBroken.
func (k *State) EndCreations(why error) {
	k.creationWaits.mu.Lock()
	defer k.creationWaits.mu.Unlock()
	for _, cancel := range k.creationWaits.cancelByContext {
		cancel(why)
	}
}

// CancelAtClose lets Close cancel a receive. done ends that, and is called when the receive is
// complete.
func (k *State) CancelAtClose(q *pml.Request, generation uint32) (done func()) {
	w := &k.creationWaits
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.generationByReceive == nil {
		w.generationByReceive = map[*pml.Request]uint32{}
	}
	w.generationByReceive[q] = generation
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.generationByReceive[q] == generation { // Otherwise it is in use again.
			delete(w.generationByReceive, q)
		}
	}
}

func (w *creationWaits) cancelReceives() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q, generation := range w.generationByReceive {
		_ = q.Cancel(generation) // No effect after its completion.
	}
}
