package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

var seed = flag.Uint64("seed", 0, "seed of random changes and deaths, 0 for one of the time")

func TestMain(m *testing.M) {
	ferrytest.Main(m, map[string]func(){"shallow": main, "shallowHolderDies": func() { endWith(holderDies()) }})
}

func TestScripts(t *testing.T) { ferrytest.Run(t) }

// small is a computation that takes a moment, and smallSum is its checksum.
var small = options{gridSize: 20, stepCount: 60, checkpointInterval: 7, output: io.Discard}

const smallSum = 0xfc8c3ef862a1b4ca

// solveJob returns the result of the small computation in a job.
func solveJob(t *testing.T, job mpitest.Job, o options) *result {
	t.Helper()
	var mu sync.Mutex
	var found *result
	job.RunSessions(t, func(ctx context.Context) error {
		session, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		r, err := solve(ctx, session, o)
		if r != nil {
			mu.Lock()
			found = r
			mu.Unlock()
		}
		return errors.Join(err, session.Close())
	})
	if found == nil {
		t.Fatal("no rank has the result")
	}
	return found
}

func TestSolve_AnyNumberOfRanks_SameBits(t *testing.T) {
	for ranks := 1; ranks <= 9; ranks++ {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			r := solveJob(t, mpitest.Job{Size: ranks}, small)
			if r.checksum != smallSum || r.stepCount != small.stepCount || r.changeCount != 0 || r.recoveryCount != 0 || r.finalRanks != ranks {
				t.Errorf("%v, want the checksum %016x", r, uint64(smallSum))
			}
		})
	}
}

func TestSolve_MoreRanksThanRows_SameBits(t *testing.T) {
	o := options{gridSize: 3, stepCount: 20, checkpointInterval: 4, output: io.Discard}
	want := solveJob(t, mpitest.Job{Size: 1}, o)
	for _, ranks := range []int{3, 5} {
		if r := solveJob(t, mpitest.Job{Size: ranks}, o); r.checksum != want.checksum || r.massDrift != want.massDrift {
			t.Errorf("%v, want the checksum %016x", r, want.checksum)
		}
	}
}

// chaos requests random changes, and has ranks die at random points, one after another.
type chaos struct {
	mu  sync.Mutex
	rng *rand.Rand
	// That are still to be requested.
	changes int
	// That are still to happen.
	deaths int
	dead   int
	// Deaths after which the others compute again.
	settled int
}

func (x *chaos) disturb(ctx context.Context, m *member, at point) {
	op, args := x.request(m, at)
	if args != (change{}) {
		_, _ = m.session.PsetOp(ctx, op, []string{m.mainPset}, mpi.PsetArgs{Add: args.add, Sub: args.sub, Partial: true}) // It may not be possible now.
	}
	if x.mustDie(ctx, m, at) {
		mpitest.Die(ctx)
	}
}

type change struct{ add, sub int }

// request returns the next change to request in rank 0.
func (x *chaos) request(m *member, at point) (mpi.PsetOp, change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at != pointDecide || m.comm.Rank() != 0 || m.savedState.atStep == m.stepCount || x.changes == 0 || x.rng.IntN(2) == 0 {
		return 0, change{}
	}
	x.changes--
	size, add := m.comm.Size(), 1+x.rng.IntN(3)
	switch op := x.rng.IntN(3); {
	case op == 0 && size > 1:
		return mpi.PsetShrink, change{sub: 1 + x.rng.IntN(size-1)}
	case op == 1:
		return mpi.PsetReplace, change{add, 1 + x.rng.IntN(size)}
	}
	return mpi.PsetGrow, change{add: add}
}

// mustDie reports whether this rank dies. Another one remains, and all rows have a copy.
func (x *chaos) mustDie(ctx context.Context, m *member, at point) bool {
	group, err := m.session.Group(ctx, m.mainPset)
	x.mu.Lock()
	defer x.mu.Unlock()
	if at == pointStep {
		x.settled = max(x.settled, m.recoveryCount)
	}
	if err != nil || x.deaths == 0 || x.settled < x.dead || x.rng.IntN(40) > 0 {
		return false
	}
	if at == pointAdopt { // It may be the only member that stays.
		return false
	}
	if group.Size() < 2 || m.comm != nil && m.comm.Size() < 2 || m.savedState.atStep == m.stepCount {
		return false
	}
	x.deaths--
	x.dead++
	return true
}

func TestSolve_RandomChangesAndDeaths_SameBits(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	for i := range uint64(8) {
		t.Run(fmt.Sprintf("seed=%d", first+i), func(t *testing.T) {
			x := &chaos{rng: rand.New(rand.NewPCG(first+i, 0)), changes: 6, deaths: 3}
			o := small
			o.disturb, o.checkpointInterval = x.disturb, 4
			r := solveJob(t, mpitest.Job{Size: 3, MaxRanks: 8, Timeout: time.Minute}, o)
			t.Logf("%d deaths: %v", x.dead, r)
			if r.checksum != smallSum || r.stepCount != o.stepCount || r.recoveryCount < x.dead {
				t.Errorf("%v, want the checksum %016x and %d recoveries", r, uint64(smallSum), x.dead)
			}
		})
	}
}

// TestSolve_NeighborDiesToo_RowsAreLost has a rank that dies in the same step as the holder of its copy.
func TestSolve_NeighborDiesToo_RowsAreLost(t *testing.T) {
	for _, dead := range [][2]int{{1, 2}, {4, 0}} {
		o := small
		o.disturb = func(ctx context.Context, m *member, at point) {
			if at == pointStep && m.savedState.atStep == 14 && m.comm.Size() == 5 && slices.Contains(dead[:], m.comm.Rank()) {
				mpitest.Die(ctx)
			}
		}
		mpitest.Job{Size: 5}.RunSessions(t, func(ctx context.Context) error {
			session, err := mpitest.Open(ctx)
			if err != nil {
				return err
			}
			if r, err := solve(ctx, session, o); !errors.Is(err, errLost) {
				return fmt.Errorf("%v, %w, want an error of lost rows", r, err)
			}
			return session.Close()
		})
	}
}

// TestSolve_OthersDieToo_RowsAreRestored has two ranks that die in the same step without being neighbors.
func TestSolve_OthersDieToo_RowsAreRestored(t *testing.T) {
	o := small
	o.disturb = func(ctx context.Context, m *member, at point) {
		if at == pointStep && m.savedState.atStep == 14 && m.comm.Size() == 5 && m.comm.Rank()%2 == 1 {
			mpitest.Die(ctx)
		}
	}
	if r := solveJob(t, mpitest.Job{Size: 5}, o); r.checksum != smallSum || r.recoveryCount == 0 {
		t.Errorf("%v, want the checksum %016x and a recovery", r, uint64(smallSum))
	}
}

// rankInJob returns the rank in the job, which members have before there is a communicator.
func rankInJob(ctx context.Context) int { return int(mpitest.Client(ctx).Identity().Proc.Rank) }

func TestSolve_RankDiesBeforeFirstCommunicator_SameBits(t *testing.T) {
	o := small
	o.disturb = func(ctx context.Context, m *member, at point) {
		if at == pointConnect && rankInJob(ctx) == 1 {
			mpitest.Die(ctx)
		}
	}
	if r := solveJob(t, mpitest.Job{Size: 3}, o); r.checksum != smallSum || r.recoveryCount != 1 {
		t.Errorf("%v, want the checksum %016x and 1 recovery", r, uint64(smallSum))
	}
}

// replaceAt returns a function that requests a change in rank 0 of all initial ranks at step 14.
func replaceAt(t *testing.T, args mpi.PsetArgs) func(context.Context, *member, point) {
	return func(ctx context.Context, m *member, at point) {
		if at == pointDecide && m.savedState.atStep == 14 && m.changeCount == 0 && m.comm.Rank() == 0 {
			if _, err := m.session.PsetOp(ctx, mpi.PsetReplace, []string{m.mainPset}, args); err != nil {
				t.Error(err)
			}
		}
	}
}

// A rank dies while the others ask for the group of the new main set, or an added one does.
func TestSolve_RankDiesAfterIntegration_SameBits(t *testing.T) {
	for _, dead := range []int{0, 1, 3} {
		o := small
		request := replaceAt(t, mpi.PsetArgs{Sub: 1, Add: 2})
		o.disturb = func(ctx context.Context, m *member, at point) {
			if at == pointAdopt && rankInJob(ctx) == dead {
				mpitest.Die(ctx)
			}
			request(ctx, m, at)
		}
		if r := solveJob(t, mpitest.Job{Size: 3, MaxRanks: 5}, o); r.checksum != smallSum || r.changeCount < 1 || r.recoveryCount < 1 {
			t.Errorf("%v, want the checksum %016x, a change and a recovery", r, uint64(smallSum))
		}
	}
}

func TestSolve_AllRanksAreReplaced_SameBits(t *testing.T) {
	for _, added := range []int{1, 2, 4} {
		o := small
		o.disturb = replaceAt(t, mpi.PsetArgs{Sub: 3, Add: added})
		if r := solveJob(t, mpitest.Job{Size: 3, MaxRanks: 7}, o); r.checksum != smallSum || r.changeCount != 1 || r.finalRanks != added {
			t.Errorf("%v, want the checksum %016x, 1 change and %d ranks", r, uint64(smallSum), added)
		}
	}
}

// TestSolve_OnlyStayingRankDies_AddedRanksHaveTheRows has a rank that dies as the only one with rows, before the others have got
// them from it.
func TestSolve_OnlyStayingRankDies_AddedRanksHaveTheRows(t *testing.T) {
	o := small
	request := replaceAt(t, mpi.PsetArgs{Sub: 2, Add: 2})
	o.disturb = func(ctx context.Context, m *member, at point) {
		if at == pointConnect && m.changeCount == 1 && rankInJob(ctx) == 0 {
			mpitest.Die(ctx)
		}
		request(ctx, m, at)
	}
	if r := solveJob(t, mpitest.Job{Size: 3, MaxRanks: 5}, o); r.checksum != smallSum || r.recoveryCount != 1 {
		t.Errorf("%v, want the checksum %016x and 1 recovery", r, uint64(smallSum))
	}
}
