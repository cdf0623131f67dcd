package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/hop"
)

// outside names the instrument of this process itself.
const outside = "compare"

// bests estimates the best raw hop of each instrument. Instruments are kept apart
// because Go's loop and C's take some nanoseconds more or less for the same hop; a
// common limit would favour one of them.
type bests map[string]*hop.Best

func (b bests) of(instrument string) *hop.Best {
	if b[instrument] == nil {
		b[instrument] = &hop.Best{}
	}
	return b[instrument]
}

// sample reports whether a sample is near, by the raw hops around the job and beside its loop.
func (b bests) sample(s sample) bool {
	return b.of(outside).Near(s.OutsideHopNS) && b.of(s.hopInstrument).Near(s.RawHopNS)
}

// ns are the estimates.
func (b bests) ns() map[string]float64 {
	out := map[string]float64{}
	for instrument, best := range b {
		if ns := best.NS(); ns > 0 { // it took some
			out[instrument] = ns
		}
	}
	return out
}

// gauge takes the raw hop between two processors from outside of the jobs, with
// two threads that are bound to them.
type gauge struct {
	bestHops   bests
	cacheLines [2]*hop.Line
	coreIDs    [2]int
}

func newGauge() (*gauge, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	g := &gauge{bestHops: bests{}}
	if set.Count() < len(g.coreIDs) {
		return nil, errors.New("two processors are needed; this process may run on one")
	}
	for i, cpu := 0, 0; i < len(g.coreIDs); cpu++ {
		if set.IsSet(cpu) {
			g.coreIDs[i] = cpu
			i++
		}
	}
	page := make([]byte, os.Getpagesize()) // The line has a page of its own.
	g.cacheLines = [2]*hop.Line{hop.At(page), hop.At(page)}
	return g, nil
}

// now measures.
func (g *gauge) now(ctx context.Context) (float64, error) {
	var ns float64 // of both threads the same but for the clock; the first one's counts
	var both errgroup.Group
	for i, core := range g.coreIDs {
		both.Go(func() error {
			// The thread keeps its affinity, and ends with its locked goroutine.
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(core)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return fmt.Errorf("bind to processor %d: %w", core, err)
			}
			mine, err := g.cacheLines[i].Measure(ctx, i == 0, nil)
			if i == 0 {
				ns = mine
			}
			return err
		})
	}
	if err := both.Wait(); err != nil {
		return 0, err
	}
	return ns, nil
}
