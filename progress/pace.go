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
	spinTime, yieldTime time.Duration
	ctx                 context.Context
	// Zero before the clock is read for the first time.
	yieldAt time.Time
	// A poll without events is followed by a yield.
	isYielding bool
	// Yields are also for other processes.
	hasNeighbors bool
	perClock     int
	pollsToClock int
	// Since the clock was read.
	eventCount int
}

// newPace returns the pace of a wait with e as its first engine.
func newPace(ctx context.Context, e *Engine) pace {
	p := pace{spinTime: e.processEngine.longSpin, yieldTime: e.yieldTime, ctx: ctx, perClock: pollsPerClock, pollsToClock: pollsPerClock}
	switch {
	case e.processEngine.yieldsAtOnce():
		p.hasNeighbors, p.spinTime = true, min(p.spinTime, OversubscribedSpin)
		p.startYielding()
	case e.rankPart != nil && ranksOversubscribed():
		p.startYielding()
	}
	return p
}

func (p *pace) startYielding() {
	p.isYielding, p.perClock = true, yieldsPerClock
	p.pollsToClock = min(p.pollsToClock, yieldsPerClock)
}

// yieldProcessor yields to other goroutines, which may be the peers, and to other
// processes. The caller holds no lock.
func (p *pace) yieldProcessor() {
	runtime.Gosched()
	if p.hasNeighbors {
		cpu.Yield()
	}
}

// next is called after each poll, with its number of events. It returns true to stop polling. err is then the cause of an ended context, or nil if the wait
// parks or its permit is not extended.
func (p *pace) next(n int, permit *pollPermit) (stop bool, err error) {
	p.eventCount += n
	if p.pollsToClock--; p.pollsToClock > 0 {
		return false, nil
	}
	p.pollsToClock = p.perClock
	now := time.Now()
	if p.yieldAt.IsZero() || p.eventCount > 0 {
		p.yieldAt, p.eventCount = now.Add(p.spinTime), 0
	}
	if p.ctx != nil && p.ctx.Err() != nil {
		return true, context.Cause(p.ctx)
	}
	if permit != nil && !permit.acquire() {
		return true, nil
	}
	late := now.Sub(p.yieldAt)
	if late > 0 {
		p.hasNeighbors = true
		p.startYielding()
	}
	return late > p.yieldTime, nil
}
