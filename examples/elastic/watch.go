package main

import (
	"context"

	"github.com/ferrympi/ferry/mpi"
)

// A watch follows the changes of one set. It is the only one to wait for them, since each
// change is reported once per process.
type watch struct {
	// Ends when a member of the set has ended.
	aliveCtx context.Context
	// Receives after each change.
	changeEvents chan struct{}
	stopWatching func()
}

// newWatch begins to follow a set. All communication of its members takes the context alive, which
// ends receives from living members that have left the communicator because of a failure.
func newWatch(ctx context.Context, session *mpi.Session, pset string) watch {
	ctx, stop := context.WithCancel(ctx)
	alive, end := context.WithCancelCause(ctx)
	w := watch{alive, make(chan struct{}, 1), stop}
	go func() {
		for {
			change, err := session.ResourceChangeAsync(pset).Wait(ctx)
			if err != nil {
				return // The set is deleted, or the watch is stopped.
			}
			if change.Type == mpi.ChangeFailed {
				end(errEnded)
			} // Rank 0 announces others after the round.
			select {
			case w.changeEvents <- struct{}{}:
			default:
			}
		}
	}()
	return w
}
