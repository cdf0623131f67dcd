package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// Many goroutine ranks, few processors, and several thread communicators at once.

// everyWait is a program with all kinds of waits. It has rings of messages of all sizes, receives from any source, collectives and splits.
func everyWait(rounds int) func(ctx context.Context, c *mpi.Comm) error {
	return func(ctx context.Context, c *mpi.Comm) error {
		n, me := c.Size(), c.Rank()
		for round := range rounds {
			size := []int{0, 8, 41, 3000, 20_000, 200_000}[round%6]
			got := make([]byte, size)
			if _, err := c.Sendrecv(ctx, pattern(size, me), (me+1)%n, 1, got, (me+n-1)%n, 1); err != nil {
				return err
			}
			if !bytes.Equal(got, pattern(size, (me+n-1)%n)) {
				return fmt.Errorf("round %d: other contents", round)
			}
			all, err := allgather(ctx, c, int64(me))
			if err != nil || !slices.IsSorted(all) || all[n-1] != int64(n-1) {
				return fmt.Errorf("round %d: %v, %w", round, all, err)
			}
			if root := round % n; me == root {
				for range n - 1 {
					if st, err := c.Recv(ctx, nil, mpi.AnySource, 2); err != nil || st.Source == root {
						return fmt.Errorf("round %d: %+v, %w", round, st, err)
					}
				}
			} else if err := c.Ssend(ctx, nil, root, 2); err != nil {
				return err
			}
			d, err := c.Split(ctx, me%3, -me)
			if err != nil {
				return err
			}
			q, err := mpi.Ibarrier(d)
			if err == nil {
				_, err = q.Wait(ctx)
			}
			if err := errors.Join(err, d.Close()); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestThreadComm_FewProcessors_NoRankStarves: 100 ranks on one and on two processors, while the collector runs.
func TestThreadComm_FewProcessors_NoRankStarves(t *testing.T) {
	rounds := 6
	if underRace {
		rounds = 2
	}
	for _, processors := range []int{1, 2} {
		for _, ranks := range []int{2, 7, 100} {
			t.Run(fmt.Sprintf("%d ranks on %d", ranks, processors), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
				stop := make(chan struct{})
				var collector sync.WaitGroup
				defer collector.Wait()
				defer close(stop)
				collector.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							runtime.GC()
						}
					}
				})
				inThreads(t, ranks, everyWait(rounds))
			})
		}
	}
}

// Goroutines of the program run thread communicators over one parent, create others,
// and read counts and queues meanwhile.
func TestThreadComm_SeveralAtOnce_AreApart(t *testing.T) {
	noLeak(t)
	rounds := 8
	if underRace {
		rounds = 2
	}
	s, parent := singleton(t)
	var programs sync.WaitGroup
	var done atomic.Bool
	var observers sync.WaitGroup
	observers.Go(func() {
		for !done.Load() {
			_ = s.Stats()
			if _, err := s.Explain(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 4 {
		over, err := parent.Dup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		programs.Go(func() {
			defer over.Close()
			for round := range rounds {
				tc, err := mpi.NewThreadComm(t.Context(), over, 1+(i+round)%5)
				if err == nil {
					err = errors.Join(tc.Run(t.Context(), everyWait(2)), tc.Run(t.Context(), everyWait(1)), tc.Close())
				}
				if err != nil {
					t.Errorf("program %d, round %d: %v", i, round, err)
				}
			}
		})
	}
	programs.Wait()
	done.Store(true)
	observers.Wait()
}

// Each process has ranks of its own over a communicator of a
// split. A goroutine waits for requests of its rank and of the process at once.
func TestThreadComm_InEachProcessOfAJob_WaitsTogetherWithIt(t *testing.T) {
	ranks(t, 3, inWorld(func(ctx context.Context, _ *mpi.Session, world *mpi.Comm) error {
		alone, err := world.Split(ctx, world.Rank(), 0)
		if err != nil {
			return err
		}
		tc, err := mpi.NewThreadComm(ctx, alone, 4)
		if err != nil {
			return err
		}
		if err := alone.Close(); err != nil {
			return err
		}
		next, previous := (world.Rank()+1)%3, (world.Rank()+2)%3
		err = tc.Run(ctx, func(ctx context.Context, c *mpi.Comm) error {
			right, left := (c.Rank()+1)%4, (c.Rank()+3)%4
			for round := range 50 {
				size := []int{8, 5000, 100_000}[round%3]
				a, b := make([]byte, size), make([]byte, size)
				var qs []mpi.Request
				for _, start := range []func() (mpi.Request, error){
					func() (mpi.Request, error) { return c.Irecv(a, left, 1) },
					func() (mpi.Request, error) { return world.Irecv(b, previous, c.Rank()) },
					func() (mpi.Request, error) { return world.Isend(pattern(size, round+c.Rank()), next, c.Rank()) },
					func() (mpi.Request, error) { return c.Isend(pattern(size, round), right, 1) },
				} {
					q, err := start()
					if err != nil {
						return err
					}
					qs = append(qs, q)
				}
				if round%2 == 0 {
					if err := mpi.WaitAll(ctx, qs, nil); err != nil {
						return err
					}
				} else {
					for range qs {
						if _, _, err := mpi.WaitAny(ctx, qs); err != nil {
							return err
						}
					}
				}
				if !bytes.Equal(a, pattern(size, round)) || !bytes.Equal(b, pattern(size, round+c.Rank())) {
					return fmt.Errorf("round %d: other contents", round)
				}
			}
			return everyWait(2)(ctx, c)
		})
		return errors.Join(err, tc.Close(), mpi.Barrier(ctx, world))
	}))
}

// The programs receive only some of the messages sent to them. Sends complete, or fail because their receiver has closed.
func TestThreadComm_RanksFinishWhileOthersSend_NothingHangs(t *testing.T) {
	noLeak(t)
	rounds := 150
	if underRace {
		rounds = 30
	}
	seed := seed(t)
	const ranks = 5
	tc := threadComm(t, ranks)
	for round := range rounds {
		err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
			rng := rand.New(rand.NewPCG(uint64(seed), uint64(round*ranks+c.Rank())))
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			var open []mpi.Request
			for range rng.IntN(40) {
				on, to, size := c, rng.IntN(ranks), []int{0, 30, 900, 20_000, 300_000}[rng.IntN(5)]
				if rng.IntN(2) == 0 {
					on = d
				}
				buf := make([]byte, size)
				var q mpi.Request
				var err error
				switch rng.IntN(7) {
				case 0:
					q, err = on.Isend(buf, to, 1)
				case 1:
					q, err = on.Issend(buf, to, 1)
				case 2:
					q, err = on.Irecv(buf, mpi.AnySource, 1)
				case 3:
					err = on.Bsend(ctx, buf, to, 1)
				case 4:
					var m *mpi.Message
					var ok bool
					if m, _, ok, err = on.Improbe(mpi.AnySource, mpi.AnyTag); ok && rng.IntN(2) == 0 {
						q, err = m.Irecv(make([]byte, 400_000))
					}
				case 5:
					if len(open) > 0 {
						err = open[rng.IntN(len(open))].Cancel()
					}
				case 6:
					_, _, err = on.Iprobe(to, 1)
				}
				if err != nil {
					return err
				}
				if q != (mpi.Request{}) {
					open = append(open, q)
				}
			}
			for _, q := range open { // Some are left to end by themselves.
				if rng.IntN(3) == 0 {
					_ = q.Free()
				}
			}
			return d.Close()
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// Nonblocking collectives and creations, messages and probes of
// several goroutines of each rank are in progress when a rank fails or the context of Run ends.
func TestThreadComm_RankFailsWithWorkUnderWay_NothingIsLeft(t *testing.T) {
	noLeak(t)
	rounds := 100
	if underRace {
		rounds = 30
	}
	seed := seed(t)
	s, parent := singleton(t)
	for round := range rounds {
		tc, err := mpi.NewThreadComm(t.Context(), parent, 1+round%7)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if round%4 == 3 {
			go func() {
				for range round % 50 {
					runtime.Gosched()
				}
				cancel()
			}()
		}
		func() {
			defer func() { _ = recover() }()
			_ = tc.Run(ctx, busyRank(rand.NewPCG(uint64(seed), uint64(round)), round))
		}()
		cancel()
		if err := tc.Close(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if err := errors.Join(parent.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// busyRank is a random program, equal in all ranks. One rank fails in it.
func busyRank(seed *rand.PCG, round int) func(context.Context, *mpi.Comm) error {
	state, _ := seed.MarshalBinary()
	return func(ctx context.Context, c *mpi.Comm) (err error) {
		var own rand.PCG
		if err := own.UnmarshalBinary(state); err != nil {
			return err
		}
		rng := rand.New(&own)
		var others sync.WaitGroup
		defer others.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		comms := []*mpi.Comm{c}
		var requests []mpi.Request
		for i := range 30 {
			if c.Rank() == round%c.Size() && i == round%30 {
				switch round % 3 {
				case 0:
					panic(errMine)
				case 1:
					runtime.Goexit()
				}
				return errMine
			}
			on := comms[rng.IntN(len(comms))]
			var made *mpi.Comm
			var started mpi.Request
			switch rng.IntN(11) {
			case 0:
				made, err = on.Dup(ctx)
			case 1:
				made, err = on.Split(ctx, 0, 0)
			case 2:
				made, err = on.CreateGroup(ctx, on.Group(), i)
			case 3:
				var r *mpi.CommRequest
				if r, err = on.Idup(); err == nil {
					others.Go(func() {
						if d, err := r.Wait(ctx); err == nil {
							_ = d.Close()
						}
					})
				}
			case 4:
				started, err = mpi.Ibarrier(on)
			case 5:
				started, err = mpi.Iallreduce(on, make([]int64, 20_000), make([]int64, 20_000), mpi.Sum[int64]())
			case 6:
				err = mpi.WaitAll(ctx, requests, nil)
				requests = nil
			case 7:
				if last := len(comms) - 1; last > 0 {
					_ = comms[last].Close()
					comms = comms[:last]
				}
			case 8:
				others.Go(func() {
					_ = on.Send(ctx, make([]byte, 50_000), 0, 5)
					_, _ = on.Recv(ctx, make([]byte, 50_000), mpi.AnySource, 5)
				})
			case 9:
				others.Go(func() { _, _, _ = on.Mprobe(ctx, mpi.AnySource, 6) })
			case 10:
				err = mpi.Barrier(ctx, on)
			}
			if err != nil {
				return err
			}
			if made != nil {
				comms = append(comms, made)
			}
			if started != (mpi.Request{}) {
				requests = append(requests, started)
			}
		}
		return nil
	}
}
