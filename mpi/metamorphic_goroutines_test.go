package mpi_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// joins reports whether the variant runs goroutine ranks of several processes. Over cm they may hang, as
// TestThreadComm_LargeScanOverCM_Ends shows.
func (v variant) joins() bool { return v.set["pml"] != "cm" }

// deal draws the distribution of a program's ranks over processes for one of its runs, which is the
// number of goroutine ranks of each process. nil: Each rank is a process.
func (p program) deal(run int, joined bool) []int {
	rng := rand.New(rand.NewPCG(p.Seed, uint64(run)))
	processes := 1 + rng.IntN(p.Ranks)
	switch one := rng.IntN(4) == 0; {
	case run == 0 || rng.IntN(3) == 0:
		return nil
	case one:
		processes = 1
	case !joined && processes > 1:
		return nil
	}
	counts := make([]int, processes)
	for i := range counts {
		counts[i] = 1
	}
	for range p.Ranks - processes {
		counts[rng.IntN(processes)]++
	}
	return counts
}

// inThreads runs f in the goroutine ranks of the variant's processes.
func (v variant) inThreads(ctx context.Context, world *mpi.Comm, f func(context.Context, *mpi.Comm) error) error {
	tc, err := mpi.NewThreadComm(ctx, world, v.goroutines[world.Rank()])
	if err != nil {
		return err
	}
	return errors.Join(tc.Run(ctx, f), tc.Close())
}

// Every process has a rank, no rank is lost, and the
// seeds of the quick suite have goroutine ranks.
func TestMetamorphicDeal_EverySeed_HasAllRanks(t *testing.T) {
	for seed := range uint64(100) {
		p := draw(seed)
		threads := 0
		for run := range 20 {
			counts := p.deal(run, run%2 == 0)
			if counts == nil {
				continue
			}
			threads++
			sum := 0
			for _, n := range counts {
				sum += n
			}
			if sum != p.Ranks || slices.Min(counts) < 1 {
				t.Errorf("seed %d, run %d: %v of %d ranks", seed, run, counts, p.Ranks)
			}
		}
		if threads == 0 && seed < 2 {
			t.Errorf("seed %d has no run with goroutine ranks", seed)
		}
	}
}

// A rank of one process sends 48 KiB to several ranks of another one, on the collective plane.
func TestThreadComm_LargeScanOverCM_Ends(t *testing.T) {
	scan := []step{{Kind: "scan", Elem: "byte sum", Bytes: 49152, Blocking: true}}
	for _, v := range variants(t) {
		if v.joins() {
			continue
		}
		for range 20 {
			v.goroutines = []int{1, 2}
			if _, err := v.run(t, program{Seed: 1, Ranks: 3, Steps: scan}, 0); err != nil {
				t.Fatalf("%s: %v", v.name, err)
			}
		}
	}
}
