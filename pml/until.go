package pml

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/progress"
)

// untilInterval is the time between two polls of Until.
const untilInterval = 200 * time.Microsecond

// Until polls until done returns true, or returns the cause of ctx. done is called with the engine's lock held. A PML's
// Flush waits with it.
func Until(ctx context.Context, e *progress.Engine, done func() bool) error {
	tick := time.NewTicker(untilInterval)
	defer tick.Stop()
	for {
		e.Lock()
		e.Progress()
		isDone := done()
		e.Unlock()
		if isDone {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
