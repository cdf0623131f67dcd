package colltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

const (
	deathTrials = 4
	deathSeries = 3   // Operations.
	lastDeathAt = 30  // Sends, receives and steps of the member before its death.
	mostYields  = 200 // Yields between the death and its report.
)

var errResult = errors.New("wrong result")

// checkDeaths kills a member at a random moment in a series of operations. The report reaches the others
// later. Each of them must complete an operation with the right result or return an error.
func (k *checker) checkDeaths(op coll.Operation) {
	seed := uint64(0)
	k.forEachAlgorithm(op, []int{2, 3, 5}, func(shape coll.Shape, a *coll.Algorithm) {
		for range deathTrials {
			seed++
			if k.openInstance != nil { // Instances are unusable after a failure.
				k.instances = k.openInstances(shape)
			}
			if err := k.runSeriesWithDeath(rand.New(rand.NewPCG(seed, 0)), op, shape.Size, a); err != nil {
				k.Fatalf("%s: %v of %d members, seed %d: %w", a.Name, op, shape.Size, seed, err)
			}
		}
	})
}

func (k *checker) runSeriesWithDeath(random *rand.Rand, op coll.Operation, size int, a *coll.Algorithm) error {
	var series [deathSeries][]*member
	for i := range series {
		series[i] = k.newMembers(call{op, size, random.IntN(size), 1 + random.IntN(4), matrices, false}, a)
	}
	dead, yields := random.IntN(size), random.IntN(mostYields)
	w := NewWorld(size, Options{FailRank: dead, FailAt: 1 + random.IntN(lastDeathAt)})
	ctx, cancel := context.WithTimeout(k.Context(), operationTimeout)
	defer cancel()
	errs := w.Run(ctx, func(ctx context.Context, p *Peer) error {
		for _, members := range series {
			m := members[p.Rank()]
			p.instance, p.call = m.instance, &m.Call
			if err := m.schedule.Inline(ctx, p, &m.Buffers, &m.Reducer); err != nil {
				for range yields {
					runtime.Gosched()
				}
				return err
			}
			if err := m.check(); err != nil {
				return fmt.Errorf("%w: %w", errResult, err)
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return fmt.Errorf("members hang after the death of rank %d", dead)
	}
	for rank, err := range errs {
		if errors.Is(err, errResult) || errors.Is(err, framework.ErrTruncate) {
			return fmt.Errorf("rank %d after the death of rank %d: %w", rank, dead, err)
		}
	}
	return nil
}
