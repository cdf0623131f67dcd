package threads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/progress"
)

// execute plans and executes an operation.
func execute(ctx context.Context, team *colltest.Team, r *colltest.Rank, op coll.Operation, args coll.Args, b coll.Buffers, f coll.Reducer) error {
	args.OwnSize = args.Size
	s, err := team.Plan(r, op, args)
	if err != nil {
		return err
	}
	return r.Execute(ctx, s, b, f)
}

// The user operation of rank 1 reads the slice of rank 0, whose context ends.
func TestWithdraw_AnotherRankCombines_WaitsForIt(t *testing.T) {
	const size = 4096
	team := newTestTeam(t, &standard, 2, impatient)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	combining, isDone, goOn := make(chan bool), make(chan bool), make(chan bool)
	var returned, isEarly atomic.Bool
	err := team.Run(func(r *colltest.Rank) error {
		b := coll.Buffers{In: make([]byte, size), Out: make([]byte, size)}
		args := coll.Args{Size: size, ElemSize: 8}
		if r.Rank == 0 {
			done := sync.OnceFunc(func() { close(isDone) })
			own := coll.Reducer{Apply: func(inout, in []byte) { sum.Apply(inout, in); done() }}
			err := execute(ctx, team, r, coll.Allreduce, args, b, own)
			returned.Store(true)
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("rank 0: %v, want the end of its context", err)
			}
			return nil
		}
		go func() {
			<-combining
			<-isDone
			for !team.Rank(0).IsParked() {
				runtime.Gosched()
			}
			cancel()
			for team.Rank(0).IsParked() {
				runtime.Gosched()
			}
			for range 1000 { // Rank 0 could return.
				runtime.Gosched()
			}
			isEarly.Store(returned.Load())
			close(goOn)
		}()
		once := sync.OnceFunc(func() { close(combining); <-goOn })
		slow := coll.Reducer{Apply: func(inout, in []byte) { once(); sum.Apply(inout, in) }}
		if err := execute(t.Context(), team, r, coll.Allreduce, args, b, slow); !errors.Is(err, errWithdrawn) {
			return fmt.Errorf("rank 1: %v, want %v", err, errWithdrawn)
		}
		return nil
	})
	if err != nil || isEarly.Load() {
		t.Errorf("%v; rank 0 returned while its slice was read: %v", err, isEarly.Load())
	}
}

// A rank that has left writes to its buffers, which the race detector checks. A rank without an
// error has the right result.
func TestWithdraw_ContextEndsAtAnyTime_BuffersAreTheCallersAgain(t *testing.T) {
	const size = 40000
	for _, n := range []int{2, 4, 5, 12} {
		for seed := range uint64(40) {
			team := newTestTeam(t, &params{FlatRanks: 4, ChunkSize: 256}, n, progress.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			leaver, after := random.IntN(n), random.IntN(2*size/8)
			var combined atomic.Int64
			f := coll.Reducer{IsQuick: true, Apply: func(inout, in []byte) {
				if sum.Apply(inout, in); combined.Add(int64(len(in)/8)) > int64(after) {
					cancel()
				}
			}}
			_ = team.Run(func(r *colltest.Rank) error {
				all := context.Background()
				if r.Rank == leaver {
					all = ctx
				} else {
					// Package mpi ends the waits of the others when a member leaves.
					var end context.CancelFunc
					all, end = context.WithCancel(all)
					defer end()
					defer context.AfterFunc(ctx, end)()
				}
				for turn := range 3 {
					in, out := slices.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, size/8), make([]byte, size)
					op := []coll.Operation{coll.Allreduce, coll.Bcast, coll.Reduce}[turn]
					b := coll.Buffers{In: in, Out: out}
					if op == coll.Bcast {
						b.In = nil
					}
					err := execute(all, team, r, op, coll.Args{Size: size, ElemSize: 8, IsQuick: true}, b, f)
					if want := slices.Repeat([]byte{byte(n), 0, 0, 0, 0, 0, 0, 0}, size/8); err == nil && op == coll.Allreduce && !bytes.Equal(out, want) {
						t.Errorf("rank %d of %d, seed %d: a wrong result without an error", r.Rank, n, seed)
					}
					clear(in)
					clear(out)
					if err != nil {
						return err
					}
				}
				return nil
			})
			cancel()
		}
	}
}

func TestArguments_Differ_AllRanksGetTheError(t *testing.T) {
	for _, n := range []int{2, 5, 9, 65} {
		for _, odd := range []int{0, n / 2, n - 1} {
			team := newTestTeam(t, &standard, n, impatient)
			err := team.Run(func(r *colltest.Rank) error {
				op, args := coll.Barrier, coll.Args{}
				if r.Rank == odd {
					op, args = coll.Allreduce, coll.Args{Size: 64, ElemSize: 8, IsQuick: true}
				}
				err := execute(t.Context(), team, r, op, args, coll.Buffers{In: make([]byte, 64), Out: make([]byte, 64)}, sum)
				if err == nil || !strings.Contains(err.Error(), "equal arguments") {
					return fmt.Errorf("rank %d of %d, odd one %d: %v", r.Rank, n, odd, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// The rank no longer counts as working.
func TestPanic_InAnOperationOfTheProgram_LetsOthersWithdraw(t *testing.T) {
	team := newTestTeam(t, &standard, 2, impatient)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := team.Run(func(r *colltest.Rank) (err error) {
		b := coll.Buffers{In: make([]byte, 4096), Out: make([]byte, 4096)}
		args := coll.Args{Size: 4096, ElemSize: 8}
		if r.Rank == 1 {
			defer func() {
				if recover() == nil {
					err = errors.New("the panic was lost")
				}
				cancel()
			}()
			return execute(ctx, team, r, coll.Allreduce, args, b, coll.Reducer{Apply: func(_, _ []byte) { panic("no sum") }})
		}
		if err := execute(ctx, team, r, coll.Allreduce, args, b, sum); err == nil {
			return errors.New("rank 0 has a result")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Each rank is polled a few times for each operation, and no rank polls the others.
func TestCollectives_TenThousandRanksAreParked_WorkIsLinear(t *testing.T) {
	const n, rounds, most = 10000, 2, 6
	team := newTestTeam(t, &standard, n, impatient)
	carryRounds := func(op coll.Operation, args coll.Args) {
		err := team.Run(func(r *colltest.Rank) error {
			for range rounds {
				b := coll.Buffers{In: make([]byte, args.Size), Out: make([]byte, args.Size)}
				if err := execute(t.Context(), team, r, op, args, b, sum); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	before := 0
	for op, args := range map[coll.Operation]coll.Args{
		coll.Barrier:   {},
		coll.Allreduce: {Size: 1024, ElemSize: 8, IsQuick: true},
		coll.Reduce:    {Size: 8, ElemSize: 8, IsQuick: true},
		coll.Bcast:     {Size: 1024},
	} {
		carryRounds(op, args)
		tries := -before
		for rank := range n {
			tries += team.Rank(rank).PollCount()
		}
		if before += tries; tries > n*rounds*most {
			t.Errorf("%d tries in polls for %d times %v of %d ranks, want at most %d for each rank and time", tries, rounds, op, n, most)
		}
	}
}
