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
	deathSeries = 3   // operations
	lastDeathAt = 30  // sends, receives and steps of the member before its death
	mostYields  = 200 // yields of the processor between the death and its report
)

var errResult = errors.New("wrong result")

// deaths has a member die at a random moment in a series of operations. The report reaches the others later. Each of them
// completes an operation with the right result, or returns an error.
func (k *checker) deaths(op coll.Operation) {
	seed := uint64(0)
	k.each(op, []int{2, 3, 5}, func(shape coll.Shape, a *coll.Algorithm) {
		for range deathTrials {
			seed++
			if k.open != nil { // the instances of before have failed
				k.instances = k.opened(shape)
			}
			if err := k.dies(rand.New(rand.NewPCG(seed, 0)), op, shape.Size, a); err != nil {
				k.Fatalf("%s: %v of %d members, seed %d: %w", a.Name, op, shape.Size, seed, err)
			}
		}
	})
}

func (k *checker) dies(random *rand.Rand, op coll.Operation, size int, a *coll.Algorithm) error {
	var series [deathSeries][]*member
	for i := range series {
		series[i] = k.members(call{op, size, random.IntN(size), 1 + random.IntN(4), matrices, false}, a)
	}
	dead, yields := random.IntN(size), random.IntN(mostYields)
	w := NewWorld(size, Options{FailRank: dead, FailAt: 1 + random.IntN(lastDeathAt)})
	ctx, cancel := context.WithTimeout(k.Context(), stuck)
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
		return fmt.Errorf("members do not end after the death of rank %d", dead)
	}
	for rank, err := range errs {
		if errors.Is(err, errResult) || errors.Is(err, framework.ErrTruncate) {
			return fmt.Errorf("rank %d after the death of rank %d: %w", rank, dead, err)
		}
	}
	return nil
}
