package progress

import "context"

// longWait is the context of a wait that parks early.
type longWait struct{ context.Context }

// LongWait returns a context for a wait that depends on other processes that need the processor. It parks after a few polls, and
// neither polls for Options.Spin nor yields for Options.Yield. The wait must get this context itself, and not one that is derived from it.
func LongWait(ctx context.Context) context.Context { return longWait{ctx} }

func isLong(ctx context.Context) bool {
	_, is := ctx.(longWait)
	return is
}
