package progress

import (
	"context"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/internal/cpu"
)

// pace decides for a wait over a rank's engine, or over several engines, when it yields
// the processor, when it reads the clock, and when it parks. active has its own code for
// the wait over a process's engine.
type pace struct {
	spin, yield time.Duration
	ctx         context.Context
	// Zero before the clock is read for the first time.
	yieldAt time.Time
	// A poll without events is followed by a yield.
	yielding bool
	// Yields are also for other processes.
	neighbors bool
	perClock  int
	// Polls until the clock is read.
	clock int
	// Events since the clock was read.
	moved int
}

// newPace returns the pace of a wait with e as its first engine.
func newPace(ctx context.Context, e *Engine) pace {
	p := pace{spin: e.process.longSpin, yield: e.yield, ctx: ctx, perClock: pollsPerClock, clock: pollsPerClock}
	switch {
	case e.process.yieldsAtOnce():
		p.neighbors, p.spin = true, min(p.spin, OversubscribedSpin)
		p.startYielding()
	case e.rank != nil && ranksOversubscribed():
		p.startYielding()
	}
	return p
}

func (p *pace) startYielding() {
	p.yielding, p.perClock = true, yieldsPerClock
	p.clock = min(p.clock, yieldsPerClock)
}

// yieldProcessor yields to other goroutines, which may be the peers, and to other
// processes. The caller holds no lock.
func (p *pace) yieldProcessor() {
	runtime.Gosched()
	if p.neighbors {
		cpu.Yield()
	}
}

// next is called after each poll, with its number of events. It returns true to stop polling. err is then the cause of an ended context, or nil if the wait
// parks or its permit is not extended.
func (p *pace) next(n int, permit *pollPermit) (stop bool, err error) {
	p.moved += n
	if p.clock--; p.clock > 0 {
		return false, nil
	}
	p.clock = p.perClock
	now := time.Now()
	if p.yieldAt.IsZero() || p.moved > 0 {
		p.yieldAt, p.moved = now.Add(p.spin), 0
	}
	if p.ctx != nil && p.ctx.Err() != nil {
		return true, context.Cause(p.ctx)
	}
	if permit != nil && !permit.acquire() {
		return true, nil
	}
	late := now.Sub(p.yieldAt)
	if late > 0 {
		p.neighbors = true
		p.startYielding()
	}
	return late > p.yield, nil
}
