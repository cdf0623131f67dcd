package mpitest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

var (
	randomChanges = flag.Int("changes", 20, "number of changes in a job of random changes")
	randomSeed    = flag.Uint64("seed", 0, "seed of random changes, 0 for one of the time")
)

// random is the state of a job of random changes, which its ranks share.
type random struct {
	most int // Of ranks.

	mu  sync.Mutex
	rng *rand.Rand
	// That are still to be made.
	changes int
	// That may still happen.
	deaths int
	// Ranks that are about to die.
	dying   int
	history map[string][]uint32
}

var errChange = errors.New("the main set has a change")

// request returns the next step of a set of n members, or nil if the job is to end.
func (x *random) request(n int) *step {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.changes <= 0 {
		if x.deaths = 0; x.dying == 0 {
			return nil
		}
		return &step{} // None now.
	}
	x.changes--
	add := 1 + x.rng.IntN(3)
	switch op := x.rng.IntN(3); {
	case op == 0 && n > 1:
		return &step{op: mpi.PsetShrink, args: mpi.PsetArgs{Sub: 1 + x.rng.IntN(n-1)}}
	case op == 1 && n > 1:
		return &step{op: mpi.PsetReplace, args: mpi.PsetArgs{Sub: 1 + x.rng.IntN(n-1), Add: add, Partial: true}}
	}
	return &step{op: mpi.PsetGrow, args: mpi.PsetArgs{Add: add, Partial: true}}
}

// mortal returns a context that ends at a random moment, if this rank is to die. end is called at the end of the rank.
func (x *random) mortal(ctx context.Context, rank int) (mortal context.Context, end func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if rank == 0 || x.deaths <= 0 || x.rng.IntN(6) > 0 {
		return ctx, func() {}
	}
	x.deaths--
	x.dying++
	mortal, cancel := context.WithCancelCause(ctx)
	time.AfterFunc(time.Duration(x.rng.Int64N(int64(20*time.Millisecond))), func() { cancel(errDead) })
	return mortal, func() {
		cancel(nil)
		x.mu.Lock()
		x.dying--
		x.mu.Unlock()
	}
}

// record checks that all ranks have the same members of a main set.
func (x *random) record(main string, members []mpi.Proc) error {
	ranks := make([]uint32, len(members))
	for i, p := range members {
		ranks[i] = p.Rank
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if before, ok := x.history[main]; ok && !slices.Equal(before, ranks) {
		return fmt.Errorf("%q has the ranks %v here, and %v elsewhere", main, ranks, before)
	}
	x.history[main] = ranks
	return nil
}

// program is that of each rank.
func (x *random) program(ctx context.Context) (err error) {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	m := &member{s: s, rank: int(mpitest.Client(ctx).Identity().Proc.Rank), main: "mpi://WORLD"}
	mortal, end := x.mortal(ctx, m.rank)
	defer end()
	if err = x.live(mortal, m); context.Cause(mortal) == errDead {
		err = errDead
	}
	if err != nil && !errors.Is(err, errDead) {
		err = fmt.Errorf("rank %d, %q: %w", m.rank, m.main, err)
	}
	if m.c != nil {
		err = errors.Join(err, m.c.Close())
	}
	return errors.Join(err, s.Close())
}

// live takes changes as they come, until the rank leaves or the job ends.
func (x *random) live(ctx context.Context, m *member) error {
	if mpitest.Client(ctx).Identity().FirstRank > 0 {
		m.main = "mpi://SELF"
		change, err := m.s.ResourceChangeAsync(m.main).Wait(ctx)
		if err != nil {
			return err
		}
		got, err := m.s.Integrate(ctx, change.Delta, "")
		if err != nil {
			return err
		}
		m.main = got.Pset
	}
	tag := m.main
	for {
		arrival := m.s.ResourceChangeAsync(m.main)
		working, cancel := context.WithCancelCause(ctx)
		go func() {
			select {
			case <-arrival.Done():
			case <-ctx.Done():
			}
			cancel(errChange)
		}()
		isEnd, err := x.work(working, m, tag)
		cancel(nil)
		if isEnd {
			return err
		}
		if err != nil && !isTransient(err) {
			return err
		}
		change, err := arrival.Wait(ctx)
		if err != nil {
			return err
		}
		if change.Type == mpi.ChangeFailed {
			if err := x.repair(ctx, m, change.Delta); err != nil {
				return err
			}
			continue
		}
		got, err := m.s.Integrate(ctx, change.Delta, "")
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, mpi.ErrProcFailed):
			tag = m.main + change.Delta
		case err != nil:
			return err
		case got.Terminate:
			return nil
		default:
			m.main, tag = got.Pset, got.Pset
		}
		if m.c != nil {
			if err := m.c.Close(); err != nil {
				return err
			}
			m.c = nil
		}
		g, err2 := m.s.Group(ctx, m.main)
		if err2 != nil {
			return err2
		}
		if err := x.record(m.main, g.Members()); err != nil {
			return err
		}
		if err == nil && g.Rank() == 0 {
			if err := m.s.FinishChange(ctx, change.Delta); err != nil {
				return err
			}
		}
	}
}

// isTransient reports whether an error of the work follows from a change or a death.
func isTransient(err error) bool {
	for _, e := range []error{errChange, mpi.ErrProcFailed, mpi.ErrBroken, mpi.ErrTransport, mpi.ErrProcFailedPending, framework.ErrCanceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// work exchanges messages until the main set has a change, which rank 0 of the set requests. isEnd is true if the job ends.
func (x *random) work(ctx context.Context, m *member, tag string) (isEnd bool, err error) {
	if m.c == nil {
		g, err := m.s.Group(ctx, m.main)
		if err != nil {
			return false, err
		}
		if m.c, err = mpi.CommFromGroup(ctx, g, tag); err != nil {
			return false, err
		}
		if m.c.Rank() == 0 {
			if change, ok, err := m.s.ResourceChange(ctx, m.main); err != nil || ok && change.Type != mpi.ChangeFailed {
				return false, fmt.Errorf("a change before its request: %+v, %w", change, err)
			}
		}
	}
	for round := 0; ; round++ {
		if err := talk(ctx, m.c); err != nil {
			return false, err
		}
		var next *step
		word := ""
		if m.c.Rank() == 0 {
			if next = x.request(m.c.Size()); next == nil {
				word = "end"
			}
		}
		if word, err = m.share(ctx, word); err != nil || word == "end" {
			return err == nil, err
		}
		if next != nil && next.op != 0 {
			_, err := m.s.PsetOp(ctx, next.op, []string{m.main}, next.args)
			switch {
			case err == nil:
				return false, nil
			case !errors.Is(err, mpi.ErrUnsupported) && !errors.Is(err, mpi.ErrProcFailed):
				return false, err
			}
		}
	}
}

// repair requests a change that removes failed members, in the first survivor.
func (x *random) repair(ctx context.Context, m *member, failed string) error {
	all, err := m.s.Group(ctx, m.main)
	if err != nil {
		return err
	}
	dead, err := m.s.Group(ctx, failed)
	if err != nil {
		return err
	}
	if all.Difference(dead).Rank() != 0 {
		return nil
	}
	_, err = m.s.PsetOp(ctx, mpi.PsetShrink, []string{m.main}, mpi.PsetArgs{})
	if errors.Is(err, mpi.ErrProcFailed) {
		return nil
	}
	return err
}

func TestJob_RandomChangesAndDeaths_MembersAgree(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Log("seed", seed)
	for i, x := range stacks() {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			state := &random{most: 6, rng: rand.New(rand.NewPCG(seed, uint64(i))), changes: *randomChanges, deaths: max(1, *randomChanges/10), history: map[string][]uint32{}}
			x.job(mpitest.Job{Size: 2, MaxRanks: state.most, Continue: true, Timeout: time.Minute + time.Duration(*randomChanges)*time.Second}).RunSessions(t, state.program)
		})
	}
}
