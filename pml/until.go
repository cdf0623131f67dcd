package pml

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/progress"
)

// untilInterval is how often Until looks again while peers have to act first.
const untilInterval = 200 * time.Microsecond

// Until progresses until done, which is asked with the engine's lock held, says so; or
// it returns the cause of ctx. It is what a PML's Flush waits with.
func Until(ctx context.Context, e *progress.Engine, done func() bool) error {
	tick := time.NewTicker(untilInterval)
	defer tick.Stop()
	for {
		e.Lock()
		e.Progress()
		over := done()
		e.Unlock()
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
