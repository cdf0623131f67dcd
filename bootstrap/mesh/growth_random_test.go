package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// growStats counts the events of a random run.
type growStats struct {
	sync.Mutex
	counts map[string]int
	// Rank 0 has ended the run. An added process that had no connection with it gets ErrTransport.
	hasEnded atomic.Bool
}

func (s *growStats) add(what string) {
	s.Lock()
	defer s.Unlock()
	s.counts[what]++
}

// randomMember is the program of one process, which takes part in changes until it leaves, dies or
// rank 0 ends the run.
type randomMember struct {
	g     *growTest
	calls *setCalls
	rng   *rand.Rand
	stats *growStats
	main  string
}

// isUndone reports whether err is the end of a change by a death or a deadline.
func isUndone(err error) bool {
	return errors.Is(err, framework.ErrProcFailed) || errors.Is(err, framework.ErrTimeout) || errors.Is(err, framework.ErrPset)
}

// run follows the changes of the main set. The last one has no processes but rank 0.
func (m *randomMember) run(ctx context.Context) error {
	if id := m.calls.Identity(); id.FirstRank > 0 {
		got, err := m.calls.Integrate(ctx, bootstrap.PsetSelf, "")
		if err != nil {
			m.stats.add("added process ends with its change")
			if m.stats.hasEnded.Load() && errors.Is(err, framework.ErrTransport) {
				return m.calls.c.Crash()
			}
			return m.end(err)
		}
		m.main = got.Pset
	}
	for {
		change, ok, err := m.calls.Query(ctx, m.main, true)
		switch {
		case err != nil:
			return m.end(err)
		case !ok || change.Type == bootstrap.ChangeFailed:
			continue // Rank 0 replaces the ended processes.
		}
		if m.rng.IntN(12) == 0 {
			m.stats.add("killed")
			return m.calls.c.Crash()
		}
		got, err := m.calls.Integrate(ctx, change.Delta, "")
		switch {
		case err != nil && isUndone(err) && m.calls.c.alive():
			m.stats.add("undone")
			continue
		case err != nil:
			return m.end(err)
		case got.Terminate:
			m.stats.add("left")
			return m.calls.Close()
		}
		m.main = got.Pset
	}
}

// alive reports whether this process was not reported dead.
func (c *client) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isolationError() == nil
}

// end ends the process after the undo of its change, or at the end of the run.
func (m *randomMember) end(err error) error {
	if !errors.Is(err, framework.ErrProcFailed) && !errors.Is(err, framework.ErrClosed) && !errors.Is(err, framework.ErrPset) {
		return fmt.Errorf("rank %d: %w", m.calls.Identity().Proc.Rank, err)
	}
	return m.calls.c.Crash()
}

// requestChange makes one change of main as rank 0, and returns the next main set.
func requestChange(ctx context.Context, m *randomMember, most int) (string, error) {
	info, err := m.calls.Pset(ctx, m.main)
	if err != nil {
		return "", err
	}
	change, ok, err := m.calls.Query(ctx, m.main, false)
	if err != nil {
		return "", err
	}
	op, args := bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 1 + m.rng.IntN(2), Partial: true}
	switch size := info.Members.Len(); {
	case ok && change.Type == bootstrap.ChangeFailed:
		op, args = bootstrap.PsetShrink, bootstrap.PsetArgs{}
	case size > 1 && (size >= most || m.rng.IntN(2) == 0):
		op, args = bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1 + m.rng.IntN(size-1)}
	}
	names, err := m.calls.Operate(ctx, op, []string{m.main}, args)
	if err != nil {
		if isUndone(err) || errors.Is(err, framework.ErrUnsupported) && strings.Contains(err.Error(), "refused") {
			m.stats.add("request failed")
			return m.main, nil
		}
		return "", err
	}
	got, err := m.calls.Integrate(ctx, names[0], "")
	switch {
	case err != nil && isUndone(err):
		m.stats.add("undone at rank 0")
		return m.main, nil
	case err != nil:
		return "", err
	}
	m.stats.add(op.String())
	return got.Pset, m.calls.FinishChange(ctx, names[0])
}

// Processes that are added at random leave, die, and are refused by the launcher. All members of a
// set agree on each change, and every process ends.
func TestGrow_RandomChangesAndDeaths_AllMembersAgree(t *testing.T) {
	onBothNetworks(t, runRandomChanges)
}

func runRandomChanges(t *testing.T, on network) {
	const most, changes = 6, 120
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := newGrowTest(t, on, 2, 20*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	stats := &growStats{counts: map[string]int{}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	launched := rand.New(rand.NewPCG(seed, 1))
	start := func(rank int) {
		m := &randomMember{g, g.at(rank), rand.New(rand.NewPCG(seed, uint64(rank+2))), stats, bootstrap.PsetWorld}
		wg.Go(func() {
			if err := m.run(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	replaceSpawn(g, func(ctx context.Context, s SpawnRequest) error {
		if launched.IntN(8) == 0 {
			return errors.New("refused by the launcher")
		}
		h, err := DecodeHandOver(s.HandOver)
		if err == nil {
			err = g.spawn(ctx, s)
		}
		for rank := h.FirstRank; err == nil && rank < h.FirstRank+h.Size; rank++ {
			wg.Go(func() { start(rank) })
		}
		return err
	})
	start(1)
	root := &randomMember{g, g.at(0), rand.New(rand.NewPCG(seed, 0)), stats, bootstrap.PsetWorld}
	for range changes {
		next, err := requestChange(ctx, root, most)
		if err != nil {
			t.Fatalf("rank 0: %v", err)
		}
		root.main = next
	}
	stats.hasEnded.Store(true)
	if err := root.calls.c.Close(); err != nil {
		t.Error(err)
	}
	root.calls.c.Crash()
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	for _, what := range []string{"grow", "shrink", "left", "killed"} {
		if stats.counts[what] == 0 {
			t.Errorf("no %s in %v", what, stats.counts)
		}
	}
	kinds := []string{}
	for what, n := range stats.counts {
		kinds = append(kinds, fmt.Sprint(what, " ", n))
	}
	slices.Sort(kinds)
	t.Logf("%s", strings.Join(kinds, ", "))
}
