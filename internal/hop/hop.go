// Package hop measures the core-to-core latency: the time of a cache line from one process or
// thread to another. Benchmarks state latencies in this unit. It also classifies the current
// distance of two processors, which changes on shared machines.
//
// Two processes exchange a counter in a single shared line, with a PAUSE in every poll.
package hop

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ferrympi/ferry/internal/cpu"
)

// Line is one process's view of the shared cache line.
type Line struct {
	word *atomic.Uint64
	// Last counter seen.
	hops uint64
	// The last hop waited for a processor.
	hasYielded bool

	// Keeps Lines of different goroutines in separate cache lines.
	_ [128]byte
}

// At returns the line at the start of mem, which is zeroed, aligned to a cache line and mapped
// as long as the Line is in use.
func At(mem []byte) *Line {
	return &Line{word: (*atomic.Uint64)(unsafe.Pointer(&mem[:unsafe.Sizeof(uint64(0))][0]))}
}

const (
	// batches is the number of batches of Measure. Their median excludes the first batch, which
	// includes the start of the other side, and interrupted ones.
	batches = 5

	// trips is the number of round trips per batch, some 100 us in all.
	trips = 200

	// batchBudget ends a batch early if its hops wait for processors. On a busy machine a hop
	// may cost a time slice, and a complete batch seconds.
	batchBudget = 10 * time.Millisecond

	// replyTimeout ends a measurement without a reply of the other side.
	replyTimeout = 10 * time.Second
)

// Measure exchanges the counter and returns the median one-way time in nanoseconds. Both
// processes call it, one of them with isFirst. If checkAlive is not nil, it is called during long
// waits; its error ends the measurement.
func (l *Line) Measure(ctx context.Context, isFirst bool, checkAlive func() error) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	var times [batches]float64
	for b := range times {
		start, end, completed := time.Now(), l.hops+2*trips, 0
		for l.hops < end {
			var err error
			if isFirst {
				next := l.hops + 1
				if l.hasYielded && time.Since(start) > batchBudget {
					next = end - 1 // Also marks the last trip for the other side.
				}
				l.hasYielded = false
				l.word.Store(next)
				l.hops, err = l.await(ctx, next+1, checkAlive)
			} else if l.hops, err = l.await(ctx, l.hops+1, checkAlive); err == nil {
				l.hops++
				l.word.Store(l.hops)
			}
			if err != nil {
				return 0, err
			}
			completed++
		}
		times[b] = float64(time.Since(start).Nanoseconds()) / float64(2*completed)
	}
	slices.Sort(times[:])
	return times[batches/2], nil
}

// await polls until the counter is at least n and returns it.
func (l *Line) await(ctx context.Context, n uint64, checkAlive func() error) (uint64, error) {
	// After some microseconds the other side may need this processor.
	const spins = 1000
	for i := 1; ; i++ {
		if now := l.word.Load(); now >= n {
			return now, nil
		}
		if i%spins != 0 {
			cpu.Pause()
			continue
		}
		err := context.Cause(ctx)
		if err == nil && checkAlive != nil {
			err = checkAlive()
		}
		if err != nil {
			return 0, fmt.Errorf("hop: no reply from the other process: %w", err)
		}
		l.hasYielded = true
		cpu.Yield()
	}
}
