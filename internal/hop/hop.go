// Package hop measures what the machine itself can do: the time that a cache
// line takes from one process or thread to another. It is the unit in which latencies are
// judged, and tells whether two processors are near or far from one another at
// the moment (they drift on shared machines).
//
// Two processes share some memory and pass a counter to and fro in a single line of
// it, with a PAUSE in every poll. It stands on internal/cpu only.
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
	hops uint64 // that this process knows of
	slow bool   // the last of them has waited for a processor

	_ [128]byte // Goroutines with a Line each write to no common cache line.
}

// At returns the line where mem begins: at a multiple of a cache line, zero at first,
// and mapped as long as the Line is used.
func At(mem []byte) *Line {
	return &Line{word: (*atomic.Uint64)(unsafe.Pointer(&mem[:unsafe.Sizeof(uint64(0))][0]))}
}

const (
	// batches is how many times Measure measures. The median drops the first, in
	// which one side still waits for the other, and an interrupt here or there.
	batches = 5

	// trips makes a measurement some 100 us long: enough for a median, too short to
	// matter beside what it accompanies.
	trips = 200

	// budget is when a measurement whose hops wait for processors is ended before its
	// last trip: on a busy machine each may take a time slice, and all of them seconds.
	budget = 10 * time.Millisecond

	// limit is when the other side counts as gone.
	limit = 10 * time.Second
)

// Measure passes the counter to and fro, and returns the median time of one way in
// nanoseconds. Both processes call it, one of them with first set. alive, unless it is
// nil, is asked while the other does not answer, and says why it never will.
func (l *Line) Measure(ctx context.Context, first bool, alive func() error) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var times [batches]float64
	for b := range times {
		start, end, made := time.Now(), l.hops+2*trips, 0
		for l.hops < end {
			var err error
			if first {
				next := l.hops + 1
				if l.slow && time.Since(start) > budget {
					next = end - 1 // the other side sees that this trip is the last
				}
				l.slow = false
				l.word.Store(next)
				l.hops, err = l.await(ctx, next+1, alive)
			} else if l.hops, err = l.await(ctx, l.hops+1, alive); err == nil {
				l.hops++
				l.word.Store(l.hops)
			}
			if err != nil {
				return 0, err
			}
			made++
		}
		times[b] = float64(time.Since(start).Nanoseconds()) / float64(2*made)
	}
	slices.Sort(times[:])
	return times[batches/2], nil
}

// await polls until the counter is n at least, and returns it.
func (l *Line) await(ctx context.Context, n uint64, alive func() error) (uint64, error) {
	// Some microseconds; beyond, the other side doesn't run: it may need this
	// very processor.
	const patience = 1000
	for i := 1; ; i++ {
		if now := l.word.Load(); now >= n {
			return now, nil
		}
		if i%patience != 0 {
			cpu.Pause()
			continue
		}
		err := context.Cause(ctx)
		if err == nil && alive != nil {
			err = alive()
		}
		if err != nil {
			return 0, fmt.Errorf("hop: the other process does not answer: %w", err)
		}
		l.slow = true
		cpu.Yield()
	}
}
