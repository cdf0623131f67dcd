package mpi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// The full run is
//
//	go test ./mpi -run Metamorphic -seeds 100
var (
	seeds     = flag.Uint64("seeds", 0, "metamorphic runner: number of seeds; 0: 2, or 1 under the race detector")
	firstSeed = flag.Uint64("seed", 0, "metamorphic runner: the first seed")
)

// attempt is a test that may fail without failing the one that makes it.
type attempt struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (a *attempt) say(args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if line := fmt.Sprint(args...); !slices.Contains(a.said, line) { // each layer that an error passes says it
		a.said = append(a.said, line)
	}
}

func (a *attempt) Helper()                           {}
func (a *attempt) Log(args ...any)                   { a.say(args...) }
func (a *attempt) Error(args ...any)                 { a.say(args...) }
func (a *attempt) Errorf(format string, args ...any) { a.say(fmt.Sprintf(format, args...)) }
func (a *attempt) FailNow()                          { runtime.Goexit() }
func (a *attempt) Fatal(args ...any)                 { a.say(args...); runtime.Goexit() }

// run runs a program over a variant, and returns the digests of each rank.
func (v variant) run(t *testing.T, p program, limit time.Duration) ([]digests, error) {
	processes := p.Ranks
	p.HasPartitioned = v.hasPartitioned
	if v.goroutines != nil {
		processes = len(v.goroutines)
	}
	job, done, err := v.job(processes)
	if err != nil {
		return nil, err
	}
	defer done()
	job.Timeout = limit
	out := make([]digests, p.Ranks)
	play := func(ctx context.Context, c *mpi.Comm) (err error) {
		out[c.Rank()], err = p.play(ctx, c)
		return err
	}
	a := &attempt{TB: t}
	ended, ok := make(chan struct{}), false
	go func() { // it ends where a test would
		defer close(ended)
		job.Run(a, func(ctx context.Context, c *mpi.Comm) error {
			if v.goroutines == nil {
				return play(ctx, c)
			}
			return v.inThreads(ctx, c, play)
		})
		ok = true
	}()
	<-ended
	if !ok {
		return nil, errors.New(strings.Join(a.said, "\n"))
	}
	return out, nil
}

// differs runs a program over a variant, and says where the outcome is another than that
// over the first. want may be nil.
func (v variant) differs(t *testing.T, first variant, p program, want []digests, limit time.Duration) error {
	if want == nil {
		var err error
		if want, err = first.run(t, p, limit); err != nil {
			return fmt.Errorf("over %s: %w", first.name, err)
		}
	}
	got, err := v.run(t, p, limit)
	if err != nil {
		return err
	}
	for _, s := range p.Steps {
		for rank := range p.Ranks {
			a, ok := want[rank][s.ID]
			b, did := got[rank][s.ID]
			if ok != did || a != b {
				return fmt.Errorf("rank %d has another outcome than over %s: step %v", rank, first.name, s)
			}
		}
	}
	return nil
}

// How long to look for a smaller program, how often to try each, and when one hangs.
const (
	shrinkTime  = 40 * time.Second
	shrinkTries = 3
	shrinkHang  = 5 * time.Second
)

// shrink takes steps of a failing program away as long as it goes on failing.
func (v variant) shrink(t *testing.T, first variant, p program) (program, error) {
	end := time.Now().Add(shrinkTime)
	var last error
	fails := func(q program) bool {
		for range shrinkTries {
			if time.Now().After(end) {
				return false
			}
			if err := v.differs(t, first, q, nil, shrinkHang); err != nil {
				last = err
				return true
			}
		}
		return false
	}
	for smaller := fails(p); smaller; {
		smaller = false
		for _, q := range p.smaller() {
			if fails(q) {
				p, smaller = q, true
				break
			}
		}
	}
	return p, last
}

// report says what a program fails with, and the smallest found that still does.
func (v variant) report(t *testing.T, first variant, p program, err error) string {
	small, smallErr := v.shrink(t, first, p)
	if smallErr == nil {
		return fmt.Sprintf("seed %d, %s: %v\nit did not fail again, when tried to be made smaller:\n%v", p.Seed, v.name, err, p)
	}
	return fmt.Sprintf("seed %d, %s: %v\nas it failed at first: %v\n%v", p.Seed, v.name, smallErr, err, small)
}

// The outcome of a program is independent of the stack, the nodes, the algorithms and the distribution of ranks over processes.
func TestMetamorphic_RandomPrograms_HaveEqualResults(t *testing.T) {
	all, n := variants(t), *seeds
	switch {
	case n != 0:
	case underRace:
		n = 1
	default:
		n = 2
	}
	var list []uint64
	for s := *firstSeed; s < *firstSeed+n; s++ {
		list = append(list, s)
	}
	if *seeds == 0 && !underRace {
		list = append(list, 36) // An operation of a rank waited for an earlier one that messages had completed.
	}
	for _, s := range list {
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			p := draw(s)
			want, err := all[0].run(t, p, 0)
			if err != nil {
				t.Fatal(all[0].report(t, all[0], p, err))
			}
			for i, v := range all {
				if v.goroutines = p.deal(i, v.joins()); v.goroutines != nil {
					v.name += fmt.Sprintf(", goroutine ranks of the processes: %v", v.goroutines)
				}
				if err := v.differs(t, all[0], p, want, 0); err != nil {
					t.Fatal(v.report(t, all[0], p, err))
				}
			}
		})
	}
}
