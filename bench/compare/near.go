package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/hop"
)

// nearFactor: a sample was taken in the near state if its raw hop is at most
// this many times the best that was seen in the run. States lie a factor of 2
// to 10 apart, and within one the hop varies by 20 %.
const nearFactor = 1.5

// outside names the instrument of this process itself.
const outside = "compare"

// bests holds the best raw hop that each instrument has seen, in ns. Instruments
// are kept apart because Go's loop and C's take some nanoseconds more or less
// for the same hop; a common limit would favour one of them.
type bests map[string]float64

func (b bests) see(instrument string, ns float64) {
	if old, ok := b[instrument]; ns > 0 && (!ok || ns < old) {
		b[instrument] = ns
	}
}

// near judges a hop by what has been seen so far; a hop that was not taken (0)
// says nothing against a sample.
func (b bests) near(instrument string, ns float64) bool {
	return ns <= nearFactor*b[instrument] || ns == 0
}

// sample judges a sample: the hops around the job, and the one beside its loop.
func (b bests) sample(s sample) bool {
	return b.near(outside, s.Outside) && b.near(s.instrument, s.Hop)
}

// pair judges a pair.
func (b bests) pair(p pair) bool { return b.sample(p.Ours) && b.sample(p.Peer) }

// gauge takes the raw hop between two processors from outside of the jobs, with
// two threads that are bound to them.
type gauge struct {
	best  bests
	lines [2]*hop.Line
	cores [2]int
}

func newGauge() (*gauge, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	g := &gauge{best: bests{}}
	if set.Count() < len(g.cores) {
		return nil, errors.New("two processors are needed; this process may run on one")
	}
	for i, cpu := 0, 0; i < len(g.cores); cpu++ {
		if set.IsSet(cpu) {
			g.cores[i] = cpu
			i++
		}
	}
	var err error
	if g.lines[0], err = hop.Create(); err != nil {
		return nil, err
	}
	g.lines[1], err = hop.Open(g.lines[0].Path())
	if err = errors.Join(err, g.lines[0].Unlink()); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *gauge) close() {
	for _, l := range g.lines {
		_ = l.Close() // unmapping our own memory
	}
}

const (
	hopTrips = 200
	hopLimit = 10 * time.Second
)

// now measures.
func (g *gauge) now(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, hopLimit)
	defer cancel()
	var ns float64 // of both threads the same but for the clock; the first one's counts
	var both errgroup.Group
	for i, core := range g.cores {
		both.Go(func() error {
			// The thread keeps its affinity and ends with its goroutine, since nobody
			// unlocks it.
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(core)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return fmt.Errorf("bind to processor %d: %w", core, err)
			}
			mine, err := g.lines[i].Measure(ctx, i == 0, hopTrips)
			if i == 0 {
				ns = mine
			}
			return err
		})
	}
	if err := both.Wait(); err != nil {
		return 0, err
	}
	g.best.see(outside, ns)
	return ns, nil
}

const (
	calibration = time.Second
	patience    = 400 * time.Millisecond // for the near state to come back
	step        = 5 * time.Millisecond
)

// calibrate looks for the near state, so that the first samples can be judged.
func (g *gauge) calibrate(ctx context.Context) error {
	for end := time.Now().Add(calibration); time.Now().Before(end); {
		if _, err := g.now(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await returns when the processors are near one another, or when that lasts
// too long, with the hop.
func (g *gauge) await(ctx context.Context, patience time.Duration) (float64, error) {
	end := time.Now().Add(patience)
	for {
		ns, err := g.now(ctx)
		if err != nil || g.best.near(outside, ns) || time.Now().After(end) {
			return ns, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(step):
		}
	}
}
